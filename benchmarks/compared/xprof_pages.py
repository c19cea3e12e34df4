"""Prints what XProf's page Input Pipeline Analyzer says of the traces below a folder, the oldest first."""

import json
import sys
from pathlib import Path

from xprof.convert import raw_to_tool_data

for path in sorted(Path(sys.argv[1]).glob("**/*.xplane.pb"), key=lambda path: path.stat().st_mtime):
    data, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], "input_pipeline_analyzer", {})
    _, steps, operations, _, problems = json.loads(data)
    said = steps["p"]
    names = {"input": "infeed", "host compute": "host_compute", "all others": "other"}
    parts = ", ".join(f"{name} {said[f'{part}_time_ms_avg']}" for name, part in names.items())
    average, deviation = said["steptime_ms_average"], said["steptime_ms_standard_deviation"]
    print(f"{path.relative_to(sys.argv[1]).parts[0]}: step time {average} ms (deviation {deviation} ms): {parts}")
    print(f"  {said['input_conclusion']}")
    for row in operations["rows"][:3]:
        cells = [cell["v"] for cell in row["c"]]
        print(f"  {cells[5]:5.1%} of the time of input operations: {cells[0]}")
    for row in problems["rows"]:
        print("  " + ": ".join(cell["v"] for cell in row["c"]))
