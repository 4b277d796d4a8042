"""The formats that are tables: what their writers get wrong, and what the columns mean."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penrose_ray.capture.formats import read_recording
from penrose_ray.capture.summary import summarise
from penrose_ray.errors import TraceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from pathlib import Path

NCU_WIDE = """==PROF== Connected to process 4711
==WARNING== Launching the workload is expected to fail
"ID","Process ID","Kernel Name","Context","Stream","Block Size","Grid Size","Device",{metrics}
"","","","","","","","","{unit}","Mbyte"
"0","1","gemm","1","7","(128, 1, 1)","(4, 2, 1)","0","{first}","1,234.5"
"1","1","relu","1","7","(64, 1, 1)","(9, 1, 1)","0","{second}","N/A"
"""
METRICS = '"gpu__time_duration.sum","dram__bytes.sum"'


@pytest.mark.parametrize(
    ("unit", "first", "second"),
    [("us", "4.5", "2"), ("ms", "0.0045", "0.002"), ("ns", "4,500", "2000"), ("nsecond", "4500", "2000")],
)
def test_ncu_preamble_units_row_and_mixed_units(tmp_path: Path, unit: str, first: str, second: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(NCU_WIDE.format(metrics=METRICS, unit=unit, first=first, second=second))
    recording = read_recording(path)
    assert recording.format == "ncu-csv"
    assert recording.counters == (
        Counter("duration", "ns", "ncu", "nvidia"),
        Counter("dram__bytes.sum", "byte", "ncu", "nvidia"),
    )
    np.testing.assert_allclose(recording.batch.counters, [[4500, 1_234_500_000], [2000, np.nan]])
    assert recording.batch.grid.tolist() == [[4, 2, 1], [9, 1, 1]]
    assert recording.batch.block.tolist() == [[128, 1, 1], [64, 1, 1]]


def test_ncu_long_form_merges_passes_and_adds_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(
        '"ID","Process ID","Kernel Name","Device","Section Name","Metric Name","Metric Unit","Metric Value"\n'
        '"0","1","gemm","0","Speed","Duration","us","4"\n'
        '"0","1","gemm","0","Speed","DRAM Throughput","%","50"\n'
        '"0","1","gemm","0","Memory","DRAM Throughput","%","50"\n'
        '"1","1","gemm","0","Speed","Duration","msecond","0.001"\n'
    )
    recording = read_recording(path)
    np.testing.assert_allclose(recording.batch.counters, [[4000, 50], [1000, np.nan]])
    assert recording.tally.duplicates == 1
    assert len(recording.batch) == 2


def test_rows_of_another_width_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "kernel_trace.csv"
    path.write_text(
        '"Kind","Agent_Id","Dispatch_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n'
        '"KERNEL_DISPATCH",1,1,"a",100,200\n"KERNEL_DISPATCH",1,2,"b",300\n"KERNEL_DISPATCH",1,3,"c",500,600\n'
    )
    recording = read_recording(path)
    assert [recording.names[name] for name in recording.batch.name_id] == ["a", "c"]
    assert recording.tally.damaged == 1
    assert recording.tally.warnings == ["1 rows have another width than the header and are left out."]


def test_table_whose_every_row_has_another_width_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "kernel_trace.csv"
    path.write_text("Agent_Id,Dispatch_Id,Kernel_Name,Extra\n1,1,a\n1,2,b\n")
    with pytest.raises(TraceError, match="no row has the 4 columns"):
        read_recording(path)


def test_header_alone_has_no_kernels(tmp_path: Path) -> None:
    path = tmp_path / "kernel_trace.csv"
    path.write_text("Agent_Id,Dispatch_Id,Kernel_Name\n")
    assert (summarise(path).kernels, summarise(path).error) == (0, "")


def test_rocprof_passes_of_one_dispatch_are_not_summed(tmp_path: Path) -> None:
    path = tmp_path / "counter_collection.csv"
    path.write_text(
        "Dispatch_Id,Agent_Id,Process_Id,Kernel_Name,Counter_Name,Counter_Value\n"
        "1,Agent 4,9,a,SQ_WAVES,100\n1,Agent 4,9,a,SQ_WAVES,100\n1,Agent 4,9,a,TCC_HIT,7\n"
    )
    recording = read_recording(path)
    assert len(recording.batch) == 1
    np.testing.assert_allclose(recording.batch.counters, [[np.nan, 100, 7]])
    assert recording.tally.duplicates == 1


def test_times_that_a_spreadsheet_has_rounded_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "pmc_perf.csv"
    path.write_text(
        "Dispatch_ID,Kernel_Name,GPU_ID,Grid_Size,Workgroup_Size,Start_Timestamp,End_Timestamp,SQ_WAVES\n"
        "0,vecCopy,2,1024,256,8.1097E+14,8.1097E+14,16\n1,vecCopy,2,1024,256,1000,3500,16\n"
    )
    recording = read_recording(path)
    assert recording.tally.bad_timestamps == 1
    np.testing.assert_allclose(recording.batch.counters, [[np.nan, 16], [2500, 16]])
    assert recording.batch.grid[0].tolist() == [4, 1, 1]


def test_merged_runs_repeat_no_description_as_counter(tmp_path: Path) -> None:
    path = tmp_path / "pmc_perf.csv"
    path.write_text(
        "Dispatch_ID,Kernel_Name,wave_size,obj,TCC_HIT[0],wave_size_1,obj_1\n0,a,64,0x7f,5,64,0x8f\n"
    )
    assert [counter.name for counter in read_recording(path).counters] == ["duration", "TCC_HIT[0]"]


ROCPROF_JSON = """{"rocprofiler-sdk-tool": [{"agents": [
{"id": {"handle": 1}, "product_name": "AMD Instinct"}],
"kernel_symbols": [{"kernel_id": 1, "kernel_name": "k.kd"}], "buffer_records": {"kernel_dispatch": [
{"start_timestamp": 10, "end_timestamp": 30, "stream_id": {"handle": 2}, "dispatch_info": {"kernel_id": 1,
"dispatch_id": 4, "agent_id": {"handle": 1}, "grid_size": {"x": 10, "y": 1, "z": 1},
"workgroup_size": {"x": 4, "y": 1, "z": 1}}}]}}]}"""
KERNEL_TRACE = """Agent_Id,Dispatch_Id,Kernel_Name,Start_Timestamp,End_Timestamp
1,1,"a(int, float)",100,250
1,2,b,300,310
"""


def test_rocprof_json_counts_groups_and_names_devices(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(ROCPROF_JSON)
    recording = read_recording(path)
    assert recording.names == ("k.kd",)
    assert recording.devices == ("AMD Instinct",)
    assert recording.batch.grid.tolist() == [[3, 1, 1]]
    assert recording.batch.counters.tolist() == [[20.0]]


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    text=st.sampled_from(
        [ROCPROF_JSON, KERNEL_TRACE, NCU_WIDE.format(metrics=METRICS, unit="us", first=1, second=2)]
    ),
    position=st.integers(0, 1 << 20),
    length=st.integers(0, 12),
    garbage=st.binary(max_size=8),
)
def test_no_damage_of_a_table_raises(
    tmp_path: Path, text: str, position: int, length: int, garbage: bytes
) -> None:
    data = text.encode()
    position %= len(data)
    path = tmp_path / "fuzz"
    path.write_bytes(data[:position] + garbage + data[position + length :])
    found = summarise(path)
    assert found.error or found.kernels <= 2


def _nsys(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        connection.execute("INSERT INTO StringIds VALUES (1, 'void gemm<float>(T1)'), (2, 'gemm')")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


_COLUMNS = "(start, end, deviceId, streamId, correlationId, shortName)"


@pytest.mark.parametrize(
    "table",
    [
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_KERNEL_V2",
        "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL_V3",
    ],
)
def test_nsys_kernel_table_of_any_version_with_few_columns(tmp_path: Path, table: str) -> None:
    path = _nsys(
        tmp_path / "a#1 %41?.sqlite",  # SQLite opens it by an URI
        f"CREATE TABLE {table} {_COLUMNS}",
        f"INSERT INTO {table} VALUES (200, 300, 0, 7, 2, 2), (400, 390, 1, 7, 1, 2)",
        "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT)",
        "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100'), (1, 'NVIDIA A100')",
    )
    recording = read_recording(path)
    assert recording.format == "nsys-sqlite"
    assert recording.batch.correlation.tolist() == [1, 2]
    assert recording.tally.bad_timestamps == 1
    assert [recording.devices[device] for device in recording.batch.device] == ["NVIDIA A100", "NVIDIA H100"]
    np.testing.assert_allclose(recording.batch.counters, [[np.nan], [100]])


def test_nsys_file_without_a_kernel_table_has_no_kernels(tmp_path: Path) -> None:
    found = summarise(_nsys(tmp_path / "r.sqlite", "CREATE TABLE ENUM_CUDA_KERNEL_LAUNCH_TYPE (id INTEGER)"))
    assert (found.kernels, found.error) == (0, "")
    assert "no kernel table" in found.health.warnings[0]


@pytest.mark.parametrize("value", ["NULL", "'text'", "x'ff00ff'", "1.5", "-9223372036854775808", "1e300"])
def test_nsys_cell_of_another_type_costs_the_times_only(tmp_path: Path, value: str) -> None:
    path = _nsys(
        tmp_path / "r.sqlite",
        f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL {_COLUMNS}",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join([value] * 4)}, 5, 2), (1, 2, 0, 7, 6, 2)",
    )
    recording = read_recording(path)
    assert recording.batch.correlation.tolist() == [5, 6]
    np.testing.assert_equal(recording.batch.counters[:, 0], [np.nan, 1])


def test_nsys_says_what_its_profiler_did_not_record(tmp_path: Path) -> None:
    path = _nsys(
        tmp_path / "r.sqlite",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start, end)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1, 2), (3, 4)",
        "CREATE TABLE DIAGNOSTIC_EVENT (severity, text)",
        "INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 'Number of events dropped: 0.'),"
        " (2, 'Not all CUDA events might have been collected.'), (3, '17 records were lost.')",
    )
    warnings = summarise(path).health.warnings
    assert any("2 graph launches are recorded as a whole" in each for each in warnings)
    assert any("says 2 times that it lost events" in each for each in warnings)


def test_nodes_of_a_graph_launch_stay_in_start_order(tmp_path: Path) -> None:
    path = _nsys(
        tmp_path / "r.sqlite",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, correlationId, graphNodeId, shortName)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES"
        " (70, 80, 9, 3, 1), (50, 60, 9, 2, 2), (99, 100, 4, 0, 2)",
    )
    recording = read_recording(path)
    assert recording.batch.graph_node.tolist() == [0, 2, 3]
    assert recording.batch.start_ns.tolist() == [99, 50, 70]


def test_ncu_warnings_behind_the_table_are_no_launches(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        NCU_WIDE.format(metrics=METRICS, unit="us", first=1, second=2)
        + "==WARNING== Profiling kernels launched by child processes requires the --target-processes option\n"
    )
    recording = read_recording(path)
    assert len(recording.batch) == 2
    assert recording.tally.damaged == 1


def test_counter_that_one_pass_lacks_is_not_measured(tmp_path: Path) -> None:
    """Passes of rocprofiler-compute may record different numbers of dispatches."""
    path = tmp_path / "pmc_perf.csv"
    path.write_text("Dispatch_ID,Kernel_Name,SQ_WAVES,TCC_HIT\n0,a,16,5\n1,a,16,\n")
    np.testing.assert_equal(read_recording(path).batch.counters[:, 1:], [[16, 5], [16, np.nan]])


def test_nsys_prefers_the_demangled_name(tmp_path: Path) -> None:
    path = _nsys(
        tmp_path / "r.sqlite",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, demangledName, shortName)",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 1, 2), (3, 4, 99, 2)",
    )
    recording = read_recording(path)
    assert [recording.names[name] for name in recording.batch.name_id] == ["void gemm<float>(T1)", "gemm"]


def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    assert "SQLite file of no known profiler" in summarise(path).error


def test_truncated_database_is_one_clear_error(tmp_path: Path) -> None:
    path = _nsys(
        tmp_path / "r.sqlite",
        f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL {_COLUMNS}",
        *["INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0, 7, 2, 2)"] * 2000,
    )
    path.write_bytes(path.read_bytes()[:9000])
    assert "damaged SQLite file" in summarise(path).error


def test_rpd_name_with_a_quote_and_missing_call_tables(tmp_path: Path) -> None:
    path = tmp_path / "t.rpd"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string TEXT)")
        texts = ["KernelExecution", 'it\'s "quoted"', "CopyHostToDevice"]
        connection.executemany("INSERT INTO rocpd_string (string) VALUES (?)", [(text,) for text in texts])
        connection.execute(
            "CREATE TABLE rocpd_op (id, gpuId, queueId, start, end, description_id, opType_id)"
        )
        operations = [(1, 2, 0, 500, 900, 2, 1), (2, 2, 0, 100, 200, 2, 1), (3, 2, 0, 1, 2, 2, 3)]
        connection.executemany("INSERT INTO rocpd_op VALUES (?, ?, ?, ?, ?, ?, ?)", operations)
        connection.commit()
    recording = read_recording(path)
    assert recording.format == "rpd-sqlite"
    assert recording.names == ('it\'s "quoted"',)
    assert recording.batch.counters[:, 0].tolist() == [100, 400]
