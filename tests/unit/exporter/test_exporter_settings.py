# mypy: disable-error-code="comparison-overlap, operator"
"""Flags and variables to settings, and what is said of wrong ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.agent.exporter.devices import DeviceSelection, SelectedReader, parse_devices
from gpuscale.agent.exporter.gpu_source import GpuSource, parse_gpu_source
from gpuscale.agent.exporter.readers import (
    ReplaceableReader,
    fields_to_read,
    make_reader,
    needs_processes,
)
from gpuscale.agent.exporter.settings import FLAGS, ReadyTaint, read_settings
from gpuscale.agent.gpu.health import HEALTH_FIELDS
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.readings import GpuIdentity, GpuInstance
from gpuscale.agent.gpu.simulated import SimulatedReader
from gpuscale.base.errors import ConfigError, UnavailableError, UsageError
from gpuscale.cli.servers.agent import plain_arguments
from gpuscale.signals import load_counters


def read(environment=None, **given):
    named = {name.replace("_", "-"): [value] for name, value in given.items()}
    return read_settings(named, environment or {}, "host-1")


def test_defaults_are_those_of_dcgm_exporter() -> None:
    settings = read()
    assert settings.counters_file == Path("/etc/dcgm-exporter/default-counters.csv")
    assert settings.address == ("", 9400)
    assert settings.interval_ms == 30_000
    assert (settings.nvml.xid_window_ms, settings.nvml.clock_window_ms) == (300_000, 300_000)
    assert settings.attribution is None
    assert settings.options.hostname == "host-1"
    assert settings.options.names == "4.8"
    assert settings.styles == {"dcgm"}
    assert settings.gpu == GpuSource("nvml", is_named=False)
    assert settings.notes == ()


# Alias and variable of every flag of upstream's table, as pkg/cmd/app.go has them.
UPSTREAM = {
    "collectors": ("f", "DCGM_EXPORTER_COLLECTORS"),
    "address": ("a", "DCGM_EXPORTER_LISTEN"),
    "collect-interval": ("c", "DCGM_EXPORTER_INTERVAL"),
    "kubernetes": ("k", "DCGM_EXPORTER_KUBERNETES"),
    "use-old-namespace": ("o", "DCGM_EXPORTER_USE_OLD_NAMESPACE"),
    "devices": ("d", "DCGM_EXPORTER_DEVICES_STR"),
    "switch-devices": ("s", "DCGM_EXPORTER_OTHER_DEVICES_STR"),
    "cpu-devices": ("p", "DCGM_EXPORTER_CPU_DEVICES_STR"),
    "configmap-data": ("m", "DCGM_EXPORTER_CONFIGMAP_DATA"),
    "remote-hostengine-info": ("r", "DCGM_REMOTE_HOSTENGINE_INFO"),
    "no-hostname": ("n", "DCGM_EXPORTER_NO_HOSTNAME"),
    "kubernetes-gpu-id-type": ("", "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE"),
    "kubernetes-enable-pod-labels": ("", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS"),
    "kubernetes-enable-pod-uid": ("", "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID"),
    "kubernetes-pod-label-allowlist-regex": (
        "",
        "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX",
    ),
    "kubernetes-virtual-gpus": ("", "KUBERNETES_VIRTUAL_GPUS"),
    "kubernetes-enable-dra": ("", "KUBERNETES_ENABLE_DRA"),
    "nvidia-resource-names": ("", "NVIDIA_RESOURCE_NAMES"),
    "pod-resources-kubelet-socket": ("", "DCGM_POD_RESOURCES_KUBELET_SOCKET"),
    "hpc-job-mapping-dir": ("", "DCGM_HPC_JOB_MAPPING_DIR"),
    "xid-count-window-size": ("x", "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE"),
    "clock-events-count-window-size": ("", "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE"),
    "replace-blanks-in-model-name": ("rbmn", "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME"),
    "web-config-file": ("", "DCGM_EXPORTER_WEB_CONFIG_FILE"),
    "web-systemd-socket": ("", "DCGM_EXPORTER_SYSTEMD_SOCKET"),
    "web-read-timeout": ("", "DCGM_EXPORTER_WEB_READ_TIMEOUT"),
    "web-write-timeout": ("", "DCGM_EXPORTER_WEB_WRITE_TIMEOUT"),
    "config-file": ("", "DCGM_EXPORTER_CONFIG_FILE"),
    "container-labels": ("", "DCGM_EXPORTER_CONTAINER_LABELS"),
    "container-runtime-socket": ("", "DCGM_CONTAINER_RUNTIME_SOCKET"),
    "enable-exporter-metrics": ("", "DCGM_EXPORTER_ENABLE_EXPORTER_METRICS"),
    "enable-gpu-bind-unbind-watch": ("", "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH"),
    "gpu-bind-unbind-poll-interval": ("", "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL"),
    "dump-enabled": ("", "DCGM_EXPORTER_DUMP_ENABLED"),
    "dump-directory": ("", "DCGM_EXPORTER_DUMP_DIRECTORY"),
    "dump-retention": ("", "DCGM_EXPORTER_DUMP_RETENTION"),
    "dump-compression": ("", "DCGM_EXPORTER_DUMP_COMPRESSION"),
    "debug": ("", "DCGM_EXPORTER_DEBUG"),
    "log-format": ("", "DCGM_EXPORTER_LOG_FORMAT"),
    "enable-dcgm-log": ("", "DCGM_EXPORTER_ENABLE_DCGM_LOG"),
    "dcgm-log-level": ("", "DCGM_EXPORTER_DCGM_LOG_LEVEL"),
    "enable-pprof": ("", "DCGM_EXPORTER_ENABLE_PPROF"),
    "disable-startup-validate": ("", "DISABLE_STARTUP_VALIDATE"),
    "fake-gpus": ("", "DCGM_EXPORTER_USE_FAKE_GPUS"),
}


@pytest.mark.parametrize("name", UPSTREAM)
def test_every_flag_of_upstream_is_there_with_its_alias_and_variable(name) -> None:
    assert (FLAGS[name].alias, FLAGS[name].env) == UPSTREAM[name]


def test_flag_wins_over_variable_and_variable_over_default() -> None:
    environment = {"DCGM_EXPORTER_INTERVAL": "5000", "DCGM_EXPORTER_LISTEN": ":9500"}
    settings = read(environment, collect_interval="1s")
    assert (settings.interval_ms, settings.address) == (1000, ("", 9500))


def test_a_file_says_the_same_as_flags(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(
        """
readings: {gpu: "simulated:NVIDIA H200:2", collectInterval: 2s, profilingInterval: 500, devices: "g:0"}
series: {names: 4.9, hostnameLabel: both, xidCountWindowSize: 1m, replaceBlanksInModelName: true}
kubernetes:
  {enabled: true, enablePodLabels: true, podLabelAllowlistRegex: [^app$, team], procRoot: /host/proc}
serving: {address: "127.0.0.1:9500"}
logging: {format: json, debug: true}
"""
    )
    flags = {
        "gpu": "simulated:NVIDIA H200:2",
        "collect_interval": "2s",
        "profiling_interval": "500",
        "devices": "g:0",
        "names": "4.9",
        "hostname_label": "both",
        "xid_count_window_size": "1m",
        "replace_blanks_in_model_name": "true",
        "kubernetes": "true",
        "kubernetes_enable_pod_labels": "true",
        "kubernetes_pod_label_allowlist_regex": "^app$,team",
        "proc_root": "/host/proc",
        "address": "127.0.0.1:9500",
        "log_format": "json",
        "debug": "true",
    }
    assert read(settings=str(path)) == read(**flags)
    assert read({"GPUSCALE_EXPORTER_SETTINGS": str(path)}) == read(**flags)


def test_flags_and_variables_win_over_the_file_and_that_over_dcgm_exporters(tmp_path) -> None:
    path, config = tmp_path / "settings.yaml", tmp_path / "config.yaml"
    config.write_text("version: 1\ncollection: {interval: 5s}\n")
    path.write_text(f"readings: {{configFile: {config}}}\n")
    assert read(settings=str(path)).interval_ms == 5_000
    path.write_text(f"readings: {{configFile: {config}, collectInterval: 4s}}\n")
    assert read(settings=str(path)).interval_ms == 4_000
    variable = {"DCGM_EXPORTER_INTERVAL": "3000"}
    assert read(variable, settings=str(path)).interval_ms == 3_000
    assert read(variable, settings=str(path), collect_interval="2s").interval_ms == 2_000


def test_what_is_wrong_in_the_file_is_said_with_its_line(tmp_path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("serving:\n  address: 9400x\nseries:\n  names: 4.7\n")
    with pytest.raises(UsageError) as caught:
        read(settings=str(path))
    assert sorted(str(caught.value).splitlines()) == [
        f"{path}:2: serving.address: found '9400x', expected [HOST]:PORT such as :9400 or 127.0.0.1:9400",
        f"{path}:4: series.names: found '4.7', expected one of: 4.8, 4.9, both",
    ]
    path.write_text("kubernetes: {dcgm: true}\nserving: {webReadTimeout: 5s}\n")
    with pytest.raises(ConfigError) as refused:
        read(settings=str(path))
    assert [problem.found for problem in refused.value.problems] == ["dcgm", "webReadTimeout"]


def test_flag_that_is_false_wins_over_a_variable_that_is_true() -> None:
    environment = {"DCGM_EXPORTER_KUBERNETES": "true"}
    assert read(environment).attribution is not None
    assert read(environment, kubernetes="false").attribution is None


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("250", 250), ("1s", 1000), ("500ms", 500), ("1m30s", 90_000)]
)
def test_bare_interval_is_milliseconds_and_units_are_taken(text: str, milliseconds: int) -> None:
    assert read(collect_interval=text).interval_ms == milliseconds


def test_profiling_has_a_pace_that_the_reader_chooses_or_one_of_its_own() -> None:
    variable = {"GPUSCALE_EXPORTER_PROFILING_INTERVAL": "10s"}
    found = [
        read().nvml,
        read(profiling_interval="0").nvml,
        read(profiling_interval="5s").nvml,
        read(variable).nvml,
    ]
    assert [each.graphics_period_ms for each in found] == [None, 0, 5_000, 10_000]
    assert [each.gpm_period_ms for each in found] == [0, 0, 5_000, 10_000]


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        (
            "collect_interval",
            "soon",
            "--collect-interval: found 'soon', expected milliseconds or a duration such as 1s or 500ms",
        ),
        (
            "collect_interval",
            "3",
            "--collect-interval: found '3', expected 100 to 3600000 milliseconds",
        ),
        (
            "stream_interval",
            "50ms",
            "--stream-interval: found '50ms', expected 100 to 3600000 milliseconds",
        ),
        (
            "address",
            "9400x",
            "--address: found '9400x', expected [HOST]:PORT such as :9400 or 127.0.0.1:9400",
        ),
        (
            "address",
            ":70000",
            "--address: found ':70000', expected [HOST]:PORT such as :9400 or 127.0.0.1:9400",
        ),
        ("kubernetes", "maybe", "--kubernetes: found 'maybe', expected true or false"),
        ("names", "4.7", "--names: found '4.7', expected one of: 4.8, 4.9, both"),
        ("style", "aws", "--style: found 'aws', expected one or several of: dcgm, ack, both"),
        (
            "devices",
            "f:0",
            "--devices: found 'f:0', expected f, g, g:0,1,3-5, i, i:0,2 or g…+i…",
        ),
        (
            "gpu",
            "tpu",
            "--gpu: found 'tpu', expected nvml, amd, simulated[:MODEL[:COUNT]] or replay:FILE",
        ),
        ("gpu", "simulated:NVIDIA H200:0", "--gpu: found '0' GPUs, expected 1 to 256"),
        (
            "dcgm_log_level",
            "LOUD",
            "--dcgm-log-level: found 'LOUD', expected one of: NONE, FATAL, ERROR, WARN, INFO, DEBUG, VERB",
        ),
    ],
)
def test_wrong_value_is_told_with_flag_found_and_expected(
    flag: str, value: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(**{flag: value})
    assert str(caught.value) == message


def test_wrong_variable_is_told_by_its_own_name() -> None:
    with pytest.raises(UsageError) as caught:
        read({"DCGM_EXPORTER_KUBERNETES": "x", "DCGM_EXPORTER_INTERVAL": "y"})
    assert str(caught.value).splitlines() == [
        "DCGM_EXPORTER_KUBERNETES: found 'x', expected true or false",
        "DCGM_EXPORTER_INTERVAL: found 'y', expected milliseconds or a duration such as 1s or 500ms",
    ]


def test_flag_without_a_meaning_here_is_explained() -> None:
    assert read(enable_dcgm_log="true").notes == (
        "--enable-dcgm-log changes nothing: there is no DCGM behind this exporter",
    )
    assert read({"KUBERNETES_VIRTUAL_GPUS": "false"}).notes == ()


def test_node_name_stands_for_the_hostname_under_kubernetes_only() -> None:
    environment = {"NODE_NAME": "node-7"}
    assert read(environment).options.hostname == "host-1"
    assert read(environment, kubernetes="true").options.hostname == "node-7"
    nameless = read(environment, kubernetes="true", no_hostname="true").options
    assert (nameless.hostname, nameless.node) == ("", "node-7")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":9400", ("", 9400)),
        ("9400", ("", 9400)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::]:9400", ("::", 9400)),
        ("node.example:80", ("node.example", 80)),
    ],
)
def test_address_is_host_and_port(text: str, expected) -> None:
    assert read(address=text).address == expected


def test_pod_labels_are_all_or_those_allowed() -> None:
    everything = read(kubernetes="true", kubernetes_enable_pod_labels="true").attribution
    assert everything.kubernetes.pod_labels == (".*",)
    some = read(
        kubernetes="true",
        kubernetes_enable_pod_labels="true",
        kubernetes_pod_label_allowlist_regex="^app$, team",
    ).attribution
    assert some.kubernetes.pod_labels == ("^app$", "team")
    assert read(kubernetes="true").attribution.kubernetes is None
    uids = read(kubernetes="true", kubernetes_enable_pod_uid="true").attribution
    assert (uids.kubernetes.name, uids.kubernetes.pod_labels) == ("host-1", ())


@pytest.mark.parametrize(
    ("text", "styles"),
    [
        ("dcgm", {"dcgm"}),
        ("ack", {"ack"}),
        ("both", {"dcgm", "ack"}),
        ("ack,dcgm", {"dcgm", "ack"}),
    ],
)
def test_styles_can_be_several(text: str, styles) -> None:
    assert read(style=text).styles == styles


def test_fake_gpus_are_simulated_ones() -> None:
    assert read(fake_gpus="true").gpu.kind == "simulated"


def test_sources_of_readings() -> None:
    assert parse_gpu_source("simulated") == GpuSource("simulated")
    assert parse_gpu_source("simulated:Tesla T4:4") == GpuSource("simulated", "Tesla T4", 4)
    assert parse_gpu_source("replay:a:b.gz") == GpuSource("replay", file="a:b.gz")


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        (["-k"], ["--kubernetes", "true"]),
        (["--kubernetes=false"], ["--kubernetes", "false"]),
        (["-collectors", "a.csv"], ["--collectors", "a.csv"]),
        (["-f=a.csv"], ["--collectors", "a.csv"]),
        (["-rbmn"], ["--replace-blanks-in-model-name", "true"]),
        (["--unknown", "-z", "x"], ["--unknown", "-z", "x"]),
    ],
)
def test_flags_can_be_typed_as_go_programs_take_them(typed: list[str], plain: list[str]) -> None:
    assert plain_arguments(typed) == plain


GPUS = tuple(GpuIdentity(n, f"GPU-{n}", f"0000000{n}:1A:00.0", "NVIDIA A100") for n in range(4))
PARTS = tuple(
    GpuIdentity(
        1, "GPU-1", GPUS[1].pci_bus_id, "NVIDIA A100", GpuInstance(n, "1g.10gb", f"MIG-{n}")
    )
    for n in (7, 9)
)


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("f", {"GPU-0", "GPU-1", "GPU-2", "GPU-3", "MIG-7", "MIG-9"}),
        ("g", {"GPU-0", "GPU-1", "GPU-2", "GPU-3"}),
        ("g:0,2-3", {"GPU-0", "GPU-2", "GPU-3"}),
        ("i", {"MIG-7", "MIG-9"}),
        ("i:1", {"MIG-9"}),
        ("g:0+i:0", {"GPU-0", "MIG-7"}),
    ],
)
def test_devices_are_chosen_as_asked(text: str, chosen) -> None:
    assert parse_devices(text).chosen((*GPUS, *PARTS)) == chosen


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g:0,9", "couldn't find requested GPU ID '9'; this node has: 0, 1, 2, 3"),
        ("i:0", "couldn't find requested instance ID '0'; this node has: none"),
    ],
)
def test_device_that_is_not_there_is_reported(text: str, message: str) -> None:
    with pytest.raises(UnavailableError) as caught:
        parse_devices(text).chosen(GPUS)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["", "x", "g:", "g:3-1", "g:99999", "g:1;2", "g+g", "i:-1", "f+g"])
def test_wrong_devices_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected f, g"):
        parse_devices(text)


def test_selected_reader_reads_only_what_is_meant() -> None:
    inner = SimulatedReader("n1", MODELS["Tesla T4"], 3, 1, lambda *_: ())
    reader = SelectedReader(inner, DeviceSelection(False, frozenset({2})))
    assert [gpu.index for gpu in reader.gpus()] == [2]
    assert [each.gpu.index for each in reader.read(1000)] == [2]
    assert reader.stats() == ()


def test_reader_reads_what_is_served_and_what_sharing_needs() -> None:
    counters = load_counters("DCGM_FI_DEV_GPU_TEMP, gauge, T.", "my.csv")
    assert fields_to_read(counters, read()) == {"DCGM_FI_DEV_GPU_TEMP", *HEALTH_FIELDS}
    assert fields_to_read(counters, read(kubernetes="true")) == {
        *HEALTH_FIELDS,
        "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_FB_TOTAL",
    }


def test_simulated_gpus_have_work_that_differs() -> None:
    settings = read(gpu="simulated:NVIDIA H200:8")
    reader = make_reader(settings, frozenset({"DCGM_FI_DEV_GPU_UTIL"}), "n1")
    values = [each.values["DCGM_FI_DEV_GPU_UTIL"] for each in reader.read(1_700_000_000_000)]
    assert len(values) == 8
    assert len(set(values)) > 4
    # The wave swings 45 points around 50.
    assert all(5 <= value <= 95 for value in values)


class Noted:
    """A reader that says which it is, and notes its end."""

    def __init__(self, name) -> None:
        self.name = name
        self.is_closed = False

    def gpus(self):
        return (self.name,)

    def read(self, _now_ms):
        return (self.name,)

    def stats(self):
        return (self.name,)

    def close(self) -> None:
        self.is_closed = True


def test_replaced_reader_is_closed_by_the_next_read() -> None:
    first, second = Noted("first"), Noted("second")
    reader = ReplaceableReader(first)
    reader.replace(second)
    assert not first.is_closed
    assert reader.read(0) == reader.gpus() == reader.stats() == ("second",)
    assert first.is_closed
    reader.close()
    assert second.is_closed


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param({}, False, id="fields of devices only"),
        pytest.param({"kubernetes": "true"}, True, id="parts of containers"),
        pytest.param({"style": "ack"}, False, id="ACK's labels alone"),
        pytest.param({"style": "ack", "kubernetes": "true"}, True, id="use by process"),
    ],
)
def test_processes_are_read_only_where_something_served_is_about_them(given, wanted: bool) -> None:
    assert needs_processes(read(**given)) is wanted


OF_FILES = {"yaml", "pydantic", "fractions", "decimal"}
OF_PODS = {
    "grpc",
    "google.protobuf",
    "gpuscale.agent.attribution.join",
    "gpuscale.kube.informers.records",
}
OF_THE_API_SERVER = {"lightkube", "httpx2", "re2"}


@pytest.mark.parametrize(
    ("loaded", "absent"),
    [
        pytest.param(
            "gpuscale.agent.exporter.process, gpuscale.agent.nvml.reader",
            OF_FILES | OF_PODS | OF_THE_API_SERVER | {"pynvml"},
            id="without pods",
        ),
        pytest.param(
            "gpuscale.agent.attribution.service, gpuscale.agent.attribution.kubelet.podresources",
            OF_FILES | OF_THE_API_SERVER,
            id="with pods, as the kubelet tells them",
        ),
    ],
)
def test_agent_loads_nothing_that_it_was_not_asked_for(loaded: str, absent) -> None:
    code = f"import sys, {loaded}\nprint(sorted({absent!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        pytest.param({"style": "ack"}, True, id="alone"),
        pytest.param({"style": "both"}, True, id="both"),
        pytest.param({"style": "ack", "kubernetes": "true"}, False, id="with pods"),
        pytest.param({}, False, id="another style"),
    ],
)
def test_missing_process_series_are_told_of(given, is_told: bool) -> None:
    assert any("no DCGM_CUSTOM_*" in note for note in read(**given).notes) is is_told


def test_flags_about_pods_without_pods_are_noted() -> None:
    note = "--kubernetes-enable-pod-uid changes nothing without --kubernetes"
    assert read(kubernetes_enable_pod_uid="true").notes == (note,)
    assert read(kubernetes_enable_pod_uid="true", kubernetes="true").notes == ()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:5555", "localhost:5555"),
        ("10.0.0.7", "10.0.0.7"),
        ("[::1]:5555", "[::1]:5555"),
        ("tcp://node-1:5556", "node-1:5556"),
        ("unix:///run/nvidia/dcgm.sock", "/run/nvidia/dcgm.sock"),
    ],
)
def test_a_host_engine_is_asked_where_it_is_said_to_be(text: str, address: str) -> None:
    found = read(remote_hostengine_info=text)
    assert (found.host_engine, found.notes) == (address, ())
    assert read({"DCGM_REMOTE_HOSTENGINE_INFO": text}).host_engine == address
    assert read().host_engine is None
    (note,) = read(remote_hostengine_info=text, gpu="simulated").notes
    assert note.endswith("a host engine is asked with --gpu nvml")


@pytest.mark.parametrize(
    "text", ["a:b", "localhost:0", "localhost:65536", "unix://run/x", "vsock://2:5555", "a b", ":1"]
)
def test_no_address_of_a_host_engine(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected HOST\[:PORT\]"):
        read(remote_hostengine_info=text)


def test_a_ready_taint_is_of_the_node_that_kubernetes_names() -> None:
    key = "gpuscale.dev/gpu-not-ready"
    assert read().ready_taint is None
    assert read(ready_taint="").ready_taint is None
    assert read({"NODE_NAME": "n1"}, ready_taint=key).ready_taint == ReadyTaint(key, "n1")
    assert read({"GPUSCALE_EXPORTER_READY_TAINT": key}).ready_taint == ReadyTaint(key, "host-1")
    with pytest.raises(
        UsageError, match=r"--ready-taint: found 'nvidia\.com/gpu', expected a key of"
    ):
        read(ready_taint="nvidia.com/gpu")
