"""Remote control over gRPC, to switch and read a program's statistics.

::

    from cprofiling.server import serve

    server = serve({"s1": pipeline}, address="127.0.0.1:0")
    print(server.address)
    ...
    server.stop()

The service is ``cprofiling.v1.ProfilingService``, described in ``profiling.proto`` with the status codes that its calls
have; its stubs are ``profiling_pb2`` and ``profiling_pb2_grpc``. Clients see the names of nodes and stages, the figures
and, of a pipeline that fails, the exception's text; they cannot name files, nor run code. Needs the extra ``grpc``.
"""

from __future__ import annotations

import os

# gRPC reads it when it is imported. Where nobody has set it, it is to be what gRPC's documentation says: else there are
# lines on stderr for each fork of the program, and for each connection that does not begin with TLS where it should.
_is_unset = "GRPC_VERBOSITY" not in os.environ
if _is_unset:
    os.environ["GRPC_VERBOSITY"] = "ERROR"
try:
    import google.protobuf  # noqa: F401 here, before others fail with less to say
    import grpc  # noqa: F401
    import grpc_health.v1  # noqa: F401
    import grpc_reflection.v1alpha  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'cprofiling.server needs the extra grpc: pip install "cprofiling[grpc]" ({error})', name=error.name
    ) from None
finally:
    if _is_unset:
        del os.environ["GRPC_VERBOSITY"]

from cprofiling.monitoring.server import profiling_pb2, profiling_pb2_grpc  # noqa: E402
from cprofiling.monitoring.server.serving import Server, serve  # noqa: E402
from cprofiling.monitoring.server.token_files import call_metadata  # noqa: E402

__all__ = ["Server", "call_metadata", "profiling_pb2", "profiling_pb2_grpc", "serve"]
