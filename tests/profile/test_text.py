"""The text of a profile."""

from made_lanes import calling, each_step, gpu_lane, graph_lane, mark, marker, trace, waiting

from tfmon.profile.breakdown import profile_of
from tfmon.reports.profile_report import to_text

GRAPH = """\
4 steps of 1.00 ms (the longest 1.00 ms), tf.function
compute-bound: running operations takes 70 % of the time

the loop's thread
  input wait         0.10 ms  10 %
  step call          0.80 ms  80 %
    operations ran   0.70 ms  70 %
    dispatch         0.10 ms  10 %
      of it Python  0.010 ms   1 %
  other              0.10 ms  10 %

operations of the step, by their own time
  operation                   device    runs  share  own time
  MatMul net/dense            CPU     1/step  100 %   0.70 ms
  all 4 that the trace shows                          0.70 ms"""


def test_a_lane_on_the_cpu():
    assert to_text(profile_of(graph_lane())) == GRAPH


def test_a_gpu_is_told_with_what_was_copied_and_why_it_was_idle():
    copies = {
        "Stream #1(MemcpyH2D)": lambda _n, at: [
            mark("MemcpyH2D", at + 60, 100, memcpy_details="kind:H2D size:2048")
        ],
        "Stream #2(MemcpyD2H)": lambda _n, at: [mark("MemcpyD2H", at + 900, 10)],
        "Stream #3(Kernel)": lambda _n, at: [mark("sgemm", at + 150, 300)],
    }
    lane = gpu_lane(lambda n, at: [marker(n, at), *waiting(at, 50), *calling(at + 50, 300, n + 1)], copies)
    lines = to_text(profile_of(lane)).splitlines()
    part = lines[lines.index("GPU:0") :]
    assert part[1:5] == [
        "  kernels                         0.30 ms  30 %",
        "  copies from the host            0.10 ms  10 %  2.0 KiB a step",
        "    that no kernel hid           0.090 ms   9 %",
        "  copies to the host             0.010 ms   1 %  n/a (the trace does not show sizes)",
    ]
    assert part[6].split() == ["idle", "0.60", "ms", "60", "%"]


def test_what_was_traced_is_told_and_what_is_not_known_says_why():
    def loop(n, at):
        building = mark("tf.function-graph_building", at + 20, 300)
        return [marker(n, at), *calling(at, 900, n + 1, "traced-nonXla"), building]

    traced = profile_of(trace({"python": each_step(2, loop)}))
    assert "  step was traced 2 times, 0.30 ms each" in to_text(traced).splitlines()
    host = trace({"python": each_step(2, lambda n, at: [marker(n, at), *waiting(at, 9)])})
    text = to_text(profile_of(host, on_gpu=True))
    assert "bottleneck: n/a (the bottleneck of a GPU lane is unknown without its GPU)" in text
    assert "n/a (the GPU left nothing in the trace)" in text
    assert "only the host's side is known" in text
