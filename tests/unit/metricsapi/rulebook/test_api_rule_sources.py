# mypy: disable-error-code="arg-type, assignment, operator"
"""Rules of several files, folders and teams' ConfigMaps, each with its own last good version."""

from pathlib import Path

import pytest

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import ConfigError
from gpuscale.server.metricsapi.rulebook.rule_book import RuleBook
from gpuscale.server.metricsapi.rulebook.rule_file import RuleFiles
from gpuscale.server.metricsapi.rulebook.team_rules import TeamFiles, TeamRules, read_config_map
from gpuscale.server.rules.resources import KUBERNETES, ResourceMapper

BAD = "rules: [{seriesQuery: [1]}]\n"


def rule(series):
    return f"- {{seriesQuery: {series}, resources: {{template: <<.Resource>>}}, metricsQuery: {series}}}\n"


def queries(config):
    return [each.series_query for each in config.rules]


@pytest.fixture
def folder(tmp_path: Path):
    folder = tmp_path / "rules.d"
    folder.mkdir()
    for name in ("b", "a"):
        (folder / f"{name}.yaml").write_text(rule(name))
    (folder / "README.md").write_text("no rules")
    (folder / ".hidden.yaml").write_text(BAD)
    (folder / "..data").mkdir()
    return folder


def test_files_come_in_the_order_of_the_flags_and_those_of_a_folder_by_name(
    tmp_path: Path, folder
) -> None:
    (tmp_path / "first.yaml").write_text(rule("z"))
    (tmp_path / "last.yaml").write_text(rule("c"))
    paths = [tmp_path / "first.yaml", folder, tmp_path / "last.yaml"]
    assert queries(RuleFiles(paths, KUBERNETES, 0).config) == ["z", "a", "b", "c"]


def test_all_faults_of_all_files_are_told_at_the_start(tmp_path: Path, folder) -> None:
    (folder / "a.yaml").write_text(BAD)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError) as caught:
        RuleFiles([folder, tmp_path / "none", tmp_path / "empty"], KUBERNETES, 0)
    assert [str(problem).partition(":")[0] for problem in caught.value.problems] == [
        str(tmp_path / "empty"),
        f"{folder}/a.yaml",
        str(tmp_path / "none"),
    ]


def test_a_bad_file_keeps_its_own_rules_and_the_others_go_on(folder) -> None:
    files = RuleFiles([folder], KUBERNETES, 1000)
    (folder / "a.yaml").write_text(BAD)
    (folder / "b.yaml").write_text(rule("b2"))
    assert files.look(KUBERNETES, 2000)
    assert queries(files.config) == ["a", "b2"]
    states = {name.rpartition("/")[2]: state for name, state in files.states.items()}
    assert (states["a.yaml"].good_ms, states["a.yaml"].failures) == (1000, 1)
    assert (states["b.yaml"].good_ms, states["b.yaml"].fault) == (2000, None)
    assert not files.look(KUBERNETES, 3000)


def test_files_come_to_a_folder_and_leave_it(folder, caplog: pytest.LogCaptureFixture) -> None:
    files = RuleFiles([folder], KUBERNETES, 0)
    (folder / "c.yaml").write_text(rule("c"))
    (folder / "d.yaml").write_text(BAD)
    assert files.look(KUBERNETES, 0)
    assert queries(files.config) == ["a", "b", "c"]
    assert caplog.records[0].getMessage().startswith("there are no good rules yet:\n")
    (folder / "a.yaml").unlink()
    assert not files.look(KUBERNETES, 0), "it may be the moment of a rename"
    assert files.look(KUBERNETES, 0)
    assert queries(files.config) == ["b", "c"]


def test_a_file_that_is_renamed_over_is_never_missed(folder) -> None:
    files = RuleFiles([folder], KUBERNETES, 0)
    (folder / "a.yaml").rename(folder / "away")
    assert not files.look(KUBERNETES, 0)
    assert queries(files.config) == ["a", "b"]
    (folder / "away").rename(folder / "a.yaml")
    files.look(KUBERNETES, 0)
    files.look(KUBERNETES, 0)
    assert queries(files.config) == ["a", "b"]


def test_a_folder_that_is_gone_keeps_its_rules_and_says_so(folder) -> None:
    files = RuleFiles([folder], KUBERNETES, 0)
    folder.rename(folder.with_name("away"))
    assert not files.look(KUBERNETES, 0)
    assert queries(files.config) == ["a", "b"]
    assert all("can't be read" in state.fault for state in files.states.values())


class Teams(TeamRules):
    """Teams' rules whose ConfigMaps are put by hand."""

    def __init__(self, namespaces="") -> None:
        super().__init__(None, None, "", ("namespace",), ManualClock(), namespaces)

    def put(self, name, namespace="team-a", **texts) -> None:
        metadata = {"namespace": namespace, "name": name}
        files = read_config_map({"metadata": metadata, "data": texts})
        self._reflector._items[f"{namespace}/{name}"] = files

    def drop(self, name, namespace="team-a") -> None:
        del self._reflector._items[f"{namespace}/{name}"]


def test_a_bad_config_map_keeps_its_own_rules_and_touches_nobody_elses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    teams = Teams()
    teams.put("gpu", a=rule("a"), b=rule("b"))
    teams.put("gpu", "team-b", a=rule("a"))
    assert teams.look(KUBERNETES, 1000)
    selectors = [
        '{__name__="a",namespace="team-a"}',
        '{__name__="b",namespace="team-a"}',
        '{__name__="a",namespace="team-b"}',
    ]
    assert queries(teams.config) == selectors
    teams.put("gpu", a=rule("c"), b=BAD)
    teams.put("new", "team-b", x="resourceRules: {}")
    assert not teams.look(KUBERNETES, 2000)
    assert queries(teams.config) == selectors
    faults = {name: state.fault for name, state in teams.states.items()}
    assert faults["configmap team-a/gpu"].startswith("configmap team-a/gpu/b:1: rules[0]")
    assert "expected rules and externalRules only" in faults["configmap team-b/new"]
    assert faults["configmap team-b/gpu"] is None
    teams.drop("gpu")
    assert teams.look(KUBERNETES, 3000)
    assert queries(teams.config) == selectors[2:]


def test_the_rules_of_a_namespace_are_bounded_and_the_last_config_map_gives_way() -> None:
    teams = Teams()
    teams.put("a", a="".join(rule(f"s{number}") for number in range(150)))
    assert teams.look(KUBERNETES, 0)
    teams.put("b", a="".join(rule(f"t{number}") for number in range(51)))
    teams.put("c", a="".join(rule(f"u{number}") for number in range(50)))
    teams.put("b", "team-b", a=rule("x"))
    assert teams.look(KUBERNETES, 0)
    assert len(teams.config.rules) == 150 + 50 + 1
    fault = "configmap team-a/b: found 201 rules in the namespace, expected at most 200"
    assert teams.states["configmap team-a/b"].fault == fault
    assert teams.faults_in("team-a") == (fault,)
    assert teams.faults_in("team-b") == ()
    assert not teams.look(KUBERNETES, 0)
    teams.drop("c")
    teams.put("b", a="".join(rule(f"t{number}") for number in range(50)))
    assert teams.look(KUBERNETES, 0)
    assert len(teams.config.rules) == 150 + 50 + 1
    assert teams.faults_in("team-a") == ()


def test_the_config_maps_of_a_namespace_are_bounded() -> None:
    teams = Teams()
    for number in range(11):
        teams.put(f"m{number:02}", a=rule(f"s{number}"))
    assert teams.look(KUBERNETES, 0)
    assert len(teams.config.rules) == 10
    assert teams.faults_in("team-a") == (
        "configmap team-a/m10: found more than 10 ConfigMaps with rules in the namespace",
    )


def test_the_bytes_of_a_namespace_are_bounded_and_long_texts_are_not_kept() -> None:
    teams = Teams()
    comment = "#" * 200 * 1024 + "\n"
    teams.put("a", x=comment + rule("a"))
    teams.put("b", x=comment + rule("b"))
    teams.put("c", x=comment * 2 + rule("c"))
    teams.put("d", x=rule("d"))
    assert teams.look(KUBERNETES, 0)
    assert queries(teams.config) == [
        '{__name__="a",namespace="team-a"}',
        '{__name__="d",namespace="team-a"}',
    ]
    assert all("more than 262144 bytes" in fault for fault in teams.faults_in("team-a"))
    assert len(teams.faults_in("team-a")) == 2
    assert teams._reflector._items["team-a/c"].texts == ()


def test_only_chosen_namespaces_count() -> None:
    teams = Teams("gpuscale.dev/rules=allowed")
    teams.put("gpu", "team-a", a=rule("a"))
    teams.put("gpu", "team-b", a=rule("b"))
    assert not teams.look(KUBERNETES, 0)
    teams._namespaces._items["team-b"] = "team-b"
    assert teams.look(KUBERNETES, 0)
    assert queries(teams.config) == ['{__name__="b",namespace="team-b"}']
    del teams._namespaces._items["team-b"]
    assert teams.look(KUBERNETES, 0)
    assert teams.config.rules == ()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, None),
        ({"metadata": {"name": "n"}, "data": {"a": "b"}}, None),
        ({"metadata": {"name": "n", "namespace": "s"}, "data": None}, TeamFiles("s", "n", (), 0)),
        (
            {"metadata": {"name": "n", "namespace": "s"}, "data": {"b": "1", "a": "2", "c": 3}},
            TeamFiles("s", "n", (("a", "2"), ("b", "1")), 4),
        ),
    ],
)
def test_a_config_map_is_read_as_far_as_it_is_one(body, expected) -> None:
    assert read_config_map(body) == expected


def test_the_book_puts_the_preset_first_and_teams_last(folder) -> None:
    teams = Teams()
    book = RuleBook([folder], KUBERNETES, 0, has_preset=True, teams=teams)
    preset = len(RuleBook([], KUBERNETES, 0, has_preset=True).config.rules)
    assert preset > 0
    assert queries(book.config)[preset:] == ["a", "b"]
    assert book.look(KUBERNETES, 1000) is None
    teams.put("gpu", a=rule("t"))
    found = book.look(KUBERNETES, 2000)
    assert queries(found)[preset:] == ["a", "b", '{__name__="t",namespace="team-a"}']


def test_the_book_tells_every_fault(folder) -> None:
    teams = Teams()
    teams.put("gpu", a=BAD)
    book = RuleBook([folder], KUBERNETES, 1000, teams=teams)
    (folder / "a.yaml").write_text(BAD)
    book.look(KUBERNETES, 2000)
    assert (book.state.good_ms, book.state.failures) == (1000, 1)
    assert [text.split(": found")[0] for text in book.remarks] == [
        f"the last good rules stay: {folder}/a.yaml:1: rules[0].seriesQuery",
        "the last good rules stay: configmap team-a/gpu/a:1: rules[0].seriesQuery",
    ]
    assert {name.rpartition("/")[2]: each.fault is None for name, each in book.states.items()} == {
        "a.yaml": False,
        "b.yaml": True,
        "gpu": False,
    }


def test_the_preset_works_in_a_cluster_that_tells_of_few_kinds() -> None:
    pods = ResourceMapper([KUBERNETES.find("pods")])
    book = RuleBook([], pods, 0, has_preset=True)
    assert book.config.rules
    more = book.look(pods.extended(KUBERNETES.find("nodes")), 0)
    assert more is not None
