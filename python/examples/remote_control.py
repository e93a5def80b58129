"""Switch the profiling of a running pipeline from a client.

The client knows only the address, and could run in another process of this user. Reads the
handwritten digits that ship with scikit-learn. Needs scikit-learn, and cprofiling's extra grpc.
"""

import threading

import grpc
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import cprofiling as cp
from cprofiling.server import call_metadata, profiling_pb2, profiling_pb2_grpc, serve


class Reader(cp.PipelineProfiling):
    """Reads digits by the nearest known one, after a projection."""

    def __init__(self, images: NDArray[np.float64], labels: NDArray[np.int64]) -> None:
        self.axes = np.linalg.svd(images - images.mean(axis=0), full_matrices=False)[2][:12].T
        self.known, self.labels = images @ self.axes, labels

    def forward(self, images: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the digits."""
        return self.nearest(self.project(images))

    @cp.profile_node(name="project")
    def project(self, images: NDArray[np.float64]) -> NDArray[np.float64]:
        projected: NDArray[np.float64] = images @ self.axes
        return projected

    @cp.profile_node(name="nearest")
    def nearest(self, projected: NDArray[np.float64]) -> NDArray[np.int64]:
        squares = ((projected[:, None, :] - self.known) ** 2).sum(axis=2)
        found: NDArray[np.int64] = self.labels[squares.argmin(axis=1)]
        return found


def control(address: str) -> None:
    """Act as the client."""
    with grpc.insecure_channel(address) as channel:
        stub, token = profiling_pb2_grpc.ProfilingServiceStub(channel), call_metadata(address)
        for session in stub.ListSessions(profiling_pb2.ListSessionsRequest(), metadata=token).sessions:
            asked = profiling_pb2.GetProfilingSummaryRequest(session_id=session.session_id)
            nodes = len(stub.GetProfilingSummary(asked, metadata=token).node_stats)
            print(f"before: {'on' if session.profiling_enabled else 'off'}, {nodes} nodes")
        request = profiling_pb2.SetProfilingRequest(session_id="reader", enabled=True, skip_first_n=1)
        stub.SetProfiling(request, metadata=token)
        request = profiling_pb2.WatchProfilingRequest(session_id="reader", interval_ms=100)
        for update in stub.WatchProfiling(request, metadata=token):
            if len(update.node_stats) == 2 and all(row.count >= 5 for row in update.node_stats):
                break
        for row in update.node_stats:
            print(f"{row.node_name}: {row.count} calls of {row.mean_ms:.3f} ms")
        request = profiling_pb2.SetProfilingRequest(session_id="reader", enabled=False)
        answer = stub.SetProfiling(request, metadata=token)
        print(f"after: {'on' if answer.profiling_enabled else 'off'}")


def main() -> None:
    """Read digits in a thread until the client is done."""
    images, labels = load_digits(return_X_y=True)
    reader = Reader(images[:900], labels[:900])
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            reader.forward(images[900:950])

    thread = threading.Thread(target=read)
    thread.start()
    try:
        with serve({"reader": reader}) as server:  # on a free port, of this machine only
            control(server.address)
    finally:
        is_over.set()
        thread.join()


if __name__ == "__main__":
    main()
