"""Synthetic traces with the events of TensorFlow's allocators."""

from made_lanes import Mark, calling, each_step, gpu, mark, marker, trace, waiting

from tfmon.profile.trace import ALLOCATION, DEALLOCATION, Space

MIB = 1 << 20
GPU_POOL = "GPU_0_bfc"


class Allocator:
    """Writes the events of an allocator as TensorFlow's does, for blocks of whole MiB."""

    def __init__(self, name: str = GPU_POOL, before: int = 0) -> None:
        self.name, self.allocated, self.highest = name, before * MIB, before * MIB
        self.sizes: dict[int, int] = {}

    def take(self, at: float, address: int, size: int, name: str, shape: str = "", **stats: object) -> Mark:
        self.sizes[address] = size * MIB
        return self._event(ALLOCATION, at, address, size * MIB, tf_op=name, shape=shape, **stats)

    def free(self, at: float, address: int, size: int = 0, **stats: object) -> Mark:
        return self._event(DEALLOCATION, at, address, -(self.sizes.pop(address, 0) or size * MIB), **stats)

    def _event(self, kind: str, at: float, address: int, size: int, **stats: object) -> Mark:
        self.allocated += size
        self.highest = max(self.highest, self.allocated)
        return mark(
            kind, at, 0, allocator_name=self.name, bytes_allocated=self.allocated, peak_bytes_in_use=self.highest,
            bytes_reserved=0, bytes_available=10_000 * MIB - self.allocated, allocation_bytes=abs(size),
            requested_bytes=abs(size) - 8, addr=address, **stats,
        )  # fmt: skip


def traced(*events: Mark, steps: int = 1, **lines: list[Mark]) -> Space:
    """Return a trace of steps of 1000 µs, with these events on an executor's thread, and a kernel."""
    loop = each_step(steps, lambda n, at: [marker(n, at), *waiting(at, 10), *calling(at + 10, 900, n + 1)])
    kernels = {"Stream #1(Kernel)": [mark("k", 500, 10)]}
    return trace({"python": loop, "tf_Compute/1": list(events), **lines}, gpu(kernels))


def one_step(pool: Allocator, at: float = 0) -> list[Mark]:
    """Two activations are kept for the gradients, which are most where the second one is computed."""
    relu, gradient = "net/large/Relu", "gradient_tape/net/large/MatMul/MatMul"
    return [
        pool.take(at + 100, 1, 40, relu, "[1024,10240]"),
        pool.take(at + 200, 2, 10, "net/small/Relu"),
        pool.take(at + 300, 3, 5, "net/small/BiasAdd"),
        pool.free(at + 310, 3, tf_op="net/other/Softmax"),
        pool.take(at + 400, 3, 20, gradient, "[1024,5120]"),
        pool.free(at + 500, 2),
        pool.take(at + 600, 2, 8, "adam/Sqrt"),
        *[pool.free(at + 700 + address, address) for address in (1, 2, 3)],
    ]
