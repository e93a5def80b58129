"""Addresses of servers, ``host`` and port or a unix socket."""

from __future__ import annotations

import ipaddress
import os
import re
import socket

from cprofiling._internal.text import shown_value

_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?")
_LAST_PORT = 65535
_UNIX = "unix:"
_LONGEST_PATH = 80  # bytes of a socket's folder and name; the system takes 107, and it is made in a folder of its own


def socket_path(value: object) -> str | None:
    """Return the absolute path of a ``unix`` address, None for others.

    Raises ValueError for a path that is empty, too long, or has a NUL.
    """
    if not isinstance(value, str) or not value.startswith(_UNIX):
        return None
    path = os.path.abspath(value.removeprefix(_UNIX))
    if value == _UNIX or "\0" in path or len(os.fsencode(path)) > _LONGEST_PATH:
        raise ValueError(
            f"address must be unix:PATH with a path of 1 to {_LONGEST_PATH} bytes when it is absolute, and no NUL, got "
            f"{shown_value(value)}"
        )
    return path


def checked_address(value: object) -> str:
    """Return an address in its usual form.

    Raises as ``split_address`` and ``socket_path``.
    """
    path = socket_path(value)
    return join_address(*split_address(value)) if path is None else f"{_UNIX}{path}"


def split_address(value: object) -> tuple[str, int]:
    """Return the host, IPv6 without brackets, and the port, 0 to 65535.

    Raises TypeError unless given a str, ValueError unless it is ``host:port``.
    """
    if not isinstance(value, str):
        raise TypeError(f"address must be a str, got {shown_value(value)}")
    host, colon, digits = value.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if is_bracketed else host
    is_host = is_ip(host, 6) if is_bracketed else is_ip(host, 4) or _NAME.fullmatch(host) is not None
    is_port = digits.isascii() and digits.isdecimal() and len(digits) <= 5 and int(digits) <= _LAST_PORT
    if not (colon and is_host and is_port):
        raise ValueError(
            "address must be HOST:PORT, such as 127.0.0.1:0, with an IPv6 address in brackets and a port from 0 to "
            f"{_LAST_PORT}, or unix:PATH, got {shown_value(value)}"
        )
    return host, int(digits)


def join_address(host: str, port: int) -> str:
    """Join host and port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_ip(host: str, version: int) -> bool:
    """Return whether a host is a well-formed address of this version of IP."""
    try:
        return ipaddress.ip_address(host).version == version
    except ValueError:
        return False


def is_local(address: str) -> bool:
    """Return whether only this machine can reach a checked address."""
    if socket_path(address) is not None:
        return True
    hosts = [split_address(address)[0]]
    try:
        if hosts[0].lower() == "localhost":
            hosts = [str(found[4][0]) for found in socket.getaddrinfo(hosts[0], None, type=socket.SOCK_STREAM)]
        found = [ipaddress.ip_address(each) for each in hosts]
    except (OSError, ValueError):
        return False
    return all((getattr(each, "ipv4_mapped", None) or each).is_loopback for each in found)
