"""Ask NVIDIA's libraries for versions and devices, in a separate process.

``doctor`` runs it to keep the libraries out of its own process. Arguments are the libraries to load: the driver's, then
those of CUPTI; the first that loads is used. Each answer is printed at once as a line of JSON, since the next
question may end the process. No context is created.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence

_NAME_SIZE = 256
# Attributes of devices, by the driver's numbers.
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76
# The functions that the profiler calls.
_CUPTI_FUNCTIONS = (
    "cuptiGetVersion", "cuptiGetResultString", "cuptiGetTimestamp", "cuptiSubscribe", "cuptiUnsubscribe",
    "cuptiEnableCallback", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable", "cuptiActivityDisable",
    "cuptiActivityFlushAll", "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords",
)  # fmt: skip
_CALLBACK_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
_CALLBACK = _CALLBACK_TYPE(lambda *_arguments: None)  # what CUPTI would call, were anything enabled


def driver(path: str) -> dict[str, object]:
    """Return the driver's version and devices, or an error.

    ``error`` is a text, ``code`` a CUresult.
    """
    try:
        library = ctypes.CDLL(path)
        code = library.cuInit(ctypes.c_uint(0))
        version = ctypes.c_int()
        library.cuDriverGetVersion(ctypes.byref(version))
        text, count = ctypes.c_char_p(), ctypes.c_int()
        library.cuGetErrorName(code, ctypes.byref(text))
        name = (text.value or b"").decode("utf-8", "replace")
        found: dict[str, object] = {"version": version.value, "code": code, "code_name": name}
        if code == 0:
            is_known = library.cuDeviceGetCount(ctypes.byref(count)) == 0
            devices: list[dict[str, object]] = []
            for ordinal in range(count.value if is_known else 0):
                handle, memory, device_name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(_NAME_SIZE)
                library.cuDeviceGet(ctypes.byref(handle), ordinal)
                library.cuDeviceGetName(device_name, _NAME_SIZE, handle)
                library.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)
                numbers = []
                for attribute in (_MAJOR, _MINOR, _MULTIPROCESSORS):
                    value = ctypes.c_int()
                    library.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle)
                    numbers.append(value.value)
                devices.append({
                    "ordinal": ordinal,
                    "name": device_name.value.decode("utf-8", "replace"),
                    "memory_bytes": memory.value,
                    "compute_capability": f"{numbers[0]}.{numbers[1]}",
                    "multiprocessors": numbers[2],
                })  # fmt: skip
            found["devices"] = devices
    except (OSError, AttributeError) as error:
        return {"error": str(error)}
    return found


def cupti(paths: Sequence[str], *, has_driver: bool) -> dict[str, object]:
    """Return CUPTI's path, version and the ``code`` of subscribing.

    As in the profiler, the first library that loads is used, and is of no use (``error``) without all of its functions.
    No ``path`` if none loads. Without a working driver nothing is called: CUPTI 13.2 recurses there without end.
    """
    found: dict[str, object] = {}
    for path in paths:
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            found = found or {"error": str(error)}
            continue
        missing = [name for name in _CUPTI_FUNCTIONS if not hasattr(library, name)]
        if missing:
            return {"path": path, "error": f"it lacks {missing[0]}"}
        if not has_driver:
            return {"path": path}
        version = ctypes.c_uint32()
        library.cuptiGetVersion(ctypes.byref(version))
        handle, text = ctypes.c_void_p(), ctypes.c_char_p()
        code = library.cuptiSubscribe(ctypes.byref(handle), _CALLBACK, None)  # the process's one subscriber
        library.cuptiGetResultString(code, ctypes.byref(text))
        if code == 0:
            library.cuptiUnsubscribe(handle)
        told = (text.value or b"").decode("utf-8", "replace")
        return {"path": path, "version": version.value, "code": code, "code_name": told}
    return found


def main(driver_path: str, *cupti_paths: str) -> None:
    """Print the answers."""
    answer = driver(driver_path)
    print(json.dumps({"driver": answer}), flush=True)
    print(json.dumps({"cupti": cupti(cupti_paths, has_driver=answer.get("code") == 0)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
