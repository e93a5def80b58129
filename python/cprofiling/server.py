"""Remote control over gRPC; needs the extra ``grpc``."""

from cprofiling._internal.faces import adopt
from cprofiling.monitoring.server import Server, call_metadata, profiling_pb2, profiling_pb2_grpc, serve

__all__ = ["Server", "call_metadata", "profiling_pb2", "profiling_pb2_grpc", "serve"]

adopt(globals())
