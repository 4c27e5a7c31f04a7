"""Plans of other tools: the load they mean, and what of them is left out, with its line."""

import textwrap

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.load.plans.reading import read_plan
from gpuscale.load.plans.types import Segment


def read(text, name, **beside):
    return read_plan(textwrap.dedent(text), name, lambda file: textwrap.dedent(beside[file]))


def segments(plan):
    return [(each.length_s, each.first, each.last) for each in plan.load.segments]


TAURUS = """
    execution:
    - concurrency: 100
      throughput: 50
      ramp-up: 1m
      hold-for: 5m
      scenario: bert
    - scenario: other
    scenarios:
      bert:
        default-address: http://bert.example
        think-time: 1s
        headers: {X-Team: vision}
        requests:
        - url: /predict?query=Music
          method: post
          body: hello
          assert: [ok]
        - /health
    reporting:
    - module: final-stats
"""


def test_taurus_throughput_is_a_rate_that_ramps_up_and_holds() -> None:
    plan = read(TAURUS, "load.yml")
    assert segments(plan) == [(60, 0, 50), (300, 50, 50)]
    assert plan.duration_s == 360
    assert plan.requests[0].url == "http://bert.example/predict?query=Music"
    assert (plan.requests[0].method, plan.requests[0].body) == ("POST", b"hello")
    assert plan.requests[0].headers == (("X-Team", "vision"),)
    assert [each.url for each in plan.requests[1:]] == ["http://bert.example/health"]
    assert plan.left_out == (
        "load.yml:20: reporting is not taken over",
        "load.yml:8: a further execution is not taken over",
        "load.yml:12: think-time is not taken over",
        "load.yml:18: assert is not taken over",
        "load.yml:3: concurrency, a bound, is not taken over; --connections is one like it",
    )


def test_taurus_steps_are_equal_rises() -> None:
    plan = read("execution: {throughput: 30, ramp-up: 60s, steps: 3, hold-for: 10s}", "a.yml")
    # Each of 3 steps is a third of the way and of the time.
    assert segments(plan) == [(20, 10, 10), (20, 20, 20), (20, 30, 30), (10, 30, 30)]


def test_taurus_concurrency_alone_is_a_closed_loop() -> None:
    text = "execution:\n- concurrency: {jmeter: 8}\n  hold-for: 30\n  scenario: {requests: ['http://a/']}"
    plan = read(text, "a.yml")
    assert (plan.load, plan.users, plan.duration_s) == (None, 8, 30)
    assert plan.requests[0].url == "http://a/"


JMX = """\
<?xml version="1.0" encoding="UTF-8"?>
<jmeterTestPlan version="1.2" properties="5.0" jmeter="5.6.3">
 <hashTree>
  <TestPlan guiclass="TestPlanGui" testclass="TestPlan" testname="plan">
   <elementProp name="TestPlan.user_defined_variables" elementType="Arguments">
    <collectionProp name="Arguments.arguments">
     <elementProp name="HOST" elementType="Argument">
      <stringProp name="Argument.name">HOST</stringProp>
      <stringProp name="Argument.value">${{__P(host,bert.example)}}</stringProp>
     </elementProp>
    </collectionProp>
   </elementProp>
  </TestPlan>
  <hashTree>
   <ConfigTestElement guiclass="HttpDefaultsGui" testclass="ConfigTestElement">
    <stringProp name="HTTPSampler.domain">${{HOST}}</stringProp>
    <stringProp name="HTTPSampler.port">8000</stringProp>
   </ConfigTestElement>
   <hashTree/>
   <ThreadGroup testname="off" enabled="false"/>
   <hashTree/>
   {group}
   <hashTree>
    <HTTPSamplerProxy testname="predict">
     <elementProp name="HTTPsampler.Arguments" elementType="Arguments">
      <collectionProp name="Arguments.arguments">
       <elementProp name="query" elementType="HTTPArgument">
        <stringProp name="Argument.name">query</stringProp>
        <stringProp name="Argument.value">Play Music</stringProp>
       </elementProp>
      </collectionProp>
     </elementProp>
     <stringProp name="HTTPSampler.path">/predict</stringProp>
     <stringProp name="HTTPSampler.method">GET</stringProp>
    </HTTPSamplerProxy>
    <hashTree>
     <ResponseAssertion testname="is ok"/>
     <hashTree/>
    </hashTree>
    {timer}
   </hashTree>
  </hashTree>
 </hashTree>
</jmeterTestPlan>
"""
PLAIN = """<ThreadGroup testname="users"><stringProp name="ThreadGroup.num_threads">20</stringProp>
<stringProp name="ThreadGroup.ramp_time">10</stringProp><boolProp name="ThreadGroup.scheduler">true</boolProp>
<stringProp name="ThreadGroup.duration">60</stringProp></ThreadGroup>"""


def blazemeter(kind, **values):
    name = f"com.blazemeter.jmeter.threads.{kind}"
    props = "".join(
        f'<stringProp name="{key}">{value}</stringProp>' for key, value in values.items()
    )
    return f"<{name} testname='group'>{props}</{name}>"


def table(tag, name, *rows):
    cells = "".join(
        "<collectionProp name='r'>"
        + "".join(f"<stringProp name='c'>{cell}</stringProp>" for cell in row)
        + "</collectionProp>"
        for row in rows
    )
    return f"<{tag} testname='t'><collectionProp name='{name}'>{cells}</collectionProp></{tag}>"


def jmeter(group=PLAIN, timer=""):
    return read_plan(JMX.format(group=group, timer=timer), "plan.jmx", lambda file: file)


def test_jmeter_thread_groups_are_users_and_their_request_has_the_defaults() -> None:
    plan = jmeter()
    assert (plan.load, plan.users, plan.duration_s) == (None, 20, 60)
    assert plan.requests[0].url == "http://bert.example:8000/predict?query=Play%20Music"
    assert "plan.jmx:39: is ok: ResponseAssertion is not taken over" in plan.left_out


def test_jmeter_timers_that_pace_are_rates() -> None:
    rate = '<doubleProp name="throughput">1200</doubleProp>'
    timer = f"<ConstantThroughputTimer>{rate}</ConstantThroughputTimer>"
    # 1 200 a minute are 20 a second, as long as the thread group takes.
    assert segments(jmeter(timer=timer)) == [(60, 20, 20)]
    shaper = table(
        "kg.apc.jmeter.timers.VariableThroughputTimer", "load_profile", (1, 50, 60), (50, 50, 300)
    )
    assert segments(jmeter(timer=shaper)) == [(60, 1, 50), (300, 50, 50)]


def test_jmeter_arrivals_are_counted_in_their_unit_of_time() -> None:
    kind = "arrivals.ArrivalsThreadGroup"
    plan = jmeter(blazemeter(kind, TargetLevel=600, RampUp=1, Steps="", Hold=5, Unit="M"))
    # 600 a minute are 10 a second; times are minutes.
    assert segments(plan) == [(60, 0, 10), (300, 10, 10)]
    plan = jmeter(blazemeter(kind, TargetLevel=12, RampUp=30, Steps=3, Hold=0, Unit="S"))
    assert segments(plan) == [(10, 4, 4), (10, 8, 8), (10, 12, 12)]
    name = "com.blazemeter.jmeter.threads.arrivals.FreeFormArrivalsThreadGroup"
    plan = jmeter(table(name, "Schedule", (60, 120, 2)))
    assert segments(plan) == [(120, 1, 2)]


SECOND = """<HTTPSamplerProxy testname="health"><stringProp name="HTTPSampler.path">/health</stringProp>
</HTTPSamplerProxy><hashTree/><HTTPSamplerProxy testname="else">
<stringProp name="HTTPSampler.domain">else.example</stringProp></HTTPSamplerProxy><hashTree/>"""


def test_jmeter_requests_to_one_server_are_sent_in_turn() -> None:
    rate = '<doubleProp name="throughput">1200</doubleProp>'
    timer = f"<ConstantThroughputTimer>{rate}</ConstantThroughputTimer>"
    plan = jmeter(timer=timer + "<hashTree/>" + SECOND)
    assert [each.url for each in plan.requests] == [
        "http://bert.example:8000/predict?query=Play%20Music",
        "http://bert.example:8000/health",
    ]
    # The timer counts requests; of arrivals each sends both.
    assert segments(plan) == [(60, 20, 20)]
    assert "a request to another server is not taken over" in " ".join(plan.left_out)
    group = blazemeter("arrivals.ArrivalsThreadGroup", TargetLevel=10, Hold=60, Unit="S")
    assert segments(jmeter(group, SECOND)) == [(60, 20, 20)]


def test_jmeter_ultimate_thread_group_is_the_sum_of_its_rows() -> None:
    rows = ((100, 0, 30, 60, 10), (50, 10, 0, 10, 0))
    plan = jmeter(
        table("kg.apc.jmeter.threads.UltimateThreadGroup", "ultimatethreadgroupdata", *rows)
    )
    # Of the first row 100 x 20 / 30 are there at 20 s, when the 50 of the second go: 116.7 in all.
    assert plan.users == 117
    assert plan.duration_s == 100


BOMB = '<!DOCTYPE a [<!ENTITY l "lol">{}]><jmeterTestPlan>&l9;</jmeterTestPlan>'.format(
    "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "a document type, which could declare entities, expected a plain XML file"),
        (
            '<!DOCTYPE a SYSTEM "file:///etc/passwd"><jmeterTestPlan/>',
            "a document type, which could declare entities",
        ),
        ("<a>" * 300 + "</a>" * 300, "200 inside each other"),
        ("<a/>", "found <a>, expected <jmeterTestPlan>"),
        (
            "<jmeterTestPlan>",
            "plan.jmx:1: found broken XML (no element found), expected a whole file",
        ),
        ("<jmeterTestPlan/>", "no enabled thread group"),
        (JMX.format(group="<SetupThreadGroup/>", timer=""), "found SetupThreadGroup, expected"),
        (
            JMX.format(group=PLAIN.replace("20", "many"), timer=""),
            "plan.jmx:22: ThreadGroup.num_threads: found 'many', expected a number",
        ),
    ],
)
def test_a_jmx_that_is_hostile_or_wrong_is_refused(text, said) -> None:
    with pytest.raises(ConfigError) as caught:
        read_plan(text, "plan.jmx", lambda file: file)
    assert said in str(caught.value)


LOCUSTFILE = """
    import os
    os._exit(3)
    from locust import HttpUser, LoadTestShape, constant_throughput, task

    class Website(HttpUser):
        host = "http://bert.example"
        wait_time = constant_throughput(0.5)

        @task
        def predict(self):
            self.client.get("/predict?query=Music", name="predict")
            self.client.post("/other", json={})

    class Stages(LoadTestShape):
        stages = [
            {"duration": 60, "users": 10, "spawn_rate": 10},
            {"duration": 100, "users": 50, "spawn_rate": 10},
        ]
"""


def test_locust_stages_and_a_pace_of_each_user_are_rates() -> None:
    plan = read(LOCUSTFILE, "locustfile.py")
    # 10 users in a second, there until 60 s; 40 more in 4 s, until 100 s; each 0.5 a second.
    assert segments(plan) == [(1, 0, 5), (59, 5, 5), (4, 5, 25), (36, 25, 25)]
    assert plan.requests[0].url == "http://bert.example/predict?query=Music"
    assert plan.left_out == (
        "locustfile.py:13: a further request, or one that is computed, is left out",
    )


def test_locust_users_with_pauses_are_a_closed_loop() -> None:
    text = LOCUSTFILE.replace("constant_throughput(0.5)", "between(1, 5)")
    plan = read(text, "locustfile.py")
    assert (plan.load, plan.users, plan.duration_s) == (None, 50, 100)
    assert "locustfile.py:8: wait_time, users' pauses, is not taken over" in plan.left_out


def test_locust_configuration_reads_the_file_it_names() -> None:
    conf = """
        locustfile = web.py
        headless = true
        users = 100   # the most
        spawn-rate: 10
        run-time = 10m
        csv = out
    """
    web = LOCUSTFILE.partition("    class Stages")[0]
    plan = read(conf, "locust.conf", **{"web.py": web})
    assert segments(plan) == [(10, 0, 50), (590, 50, 50)]
    assert "locust.conf:7: csv is not taken over" in plan.left_out
    toml = '[tool.locust]\nusers = 3\nrun-time = "1m"\nhost = "http://a"\n'
    assert read(toml, "pyproject.toml").users == 3
    assert read("a = " + "[" * 50_000 + "\nusers = 4\n", "locust.toml").users == 4


def test_a_locust_shape_that_is_computed_is_named_and_not_run() -> None:
    text = """
        class Wave(LoadTestShape):
            def tick(self):
                return (math.sin(self.get_run_time()), 10)
    """
    with pytest.raises(ConfigError, match="no stages, expected a LoadTestShape with a list"):
        read(text, "locustfile.py")


K6 = """
    import http from 'k6/http';
    import { sleep } from 'k6';
    const BASE = `http://bert.example`;
    export const options = {
      thresholds: { http_req_duration: ['p(95)<500'] }, // promises
      scenarios: {
        /* the one */
        "spike": {
          executor: 'ramping-arrival-rate',
          startRate: 60, timeUnit: '1m',
          preAllocatedVUs: 50,
          stages: [
            { target: 600, duration: '30s' },
            { target: 1_200, duration: '0' },
            { duration: "1m30s", target: 1200 },
          ],
        },
        later: { executor: 'constant-vus', vus: 3, duration: '1m' },
      },
    }
    export default function () {
      http.get('http://bert.example/predict?query=Music');
      http.post(`${BASE}/other`, JSON.stringify({a: [1, 2]}));
    }
"""


def test_k6_arrival_rates_are_rates_in_their_unit_of_time() -> None:
    plan = read(K6, "script.js")
    # 60, 600 and 1 200 a minute are 1, 10 and 20 a second.
    assert segments(plan) == [(30, 1, 10), (90, 20, 20)]
    assert plan.requests[0].url == "http://bert.example/predict?query=Music"
    assert plan.left_out == (
        "script.js:24: a further request, or one that is computed, is not taken over",
        "script.js:6: thresholds is not taken over",
        "script.js:19: the further scenario later is not taken over",
        "script.js:12: preAllocatedVUs, a bound, is not taken over; --connections is one like it",
    )


def test_k6_options_may_be_json_or_of_virtual_users() -> None:
    text = (
        '{"scenarios": {"a": {"executor": "constant-arrival-rate", "rate": 30, "duration": "1m"}}}'
    )
    assert segments(read(text, "options.json")) == [(60, 30, 30)]
    text = "export let options = {stages: [{duration: '5m', target: 60}, {duration: 10000, target: 0}]};"
    plan = read(text, "script.js")
    assert (plan.load, plan.users, plan.duration_s) == (None, 60, 310)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("export default function () {}", "found no options, expected export const options"),
        ("export const options = make();", "found an expression, expected an object"),
        (
            "export const options = {\nscenarios: {a: {executor: 'constant-arrival-rate',\n"
            "rate: __ENV.RATE || 5, duration: '1m'}}}",
            "script.js:3: rate: found '__ENV.RATE || 5', expected a value that is written out",
        ),
        ("export const options = {stages: [{duration: 'soon', target: 1}]}", "expected a duration"),
        ("export const options = {vus: 5", "a value without an end"),
        ("export const options = {a: [}", "a value without an end"),
        ("export const options = {/* a", "a comment without an end"),
        ("export const options = " + "[" * 1000, "nested too deeply"),
    ],
)
def test_a_k6_script_that_says_nothing_plain_is_refused(text, said) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text, "script.js")
    assert said in str(caught.value)


def test_another_file_is_no_plan() -> None:
    with pytest.raises(ConfigError, match="expected a plan of Taurus"):
        read("hello", "notes.txt")
    with pytest.raises(ConfigError, match="expected a plan of Taurus"):
        read("kind: Deployment", "deployment.yaml")


def test_segments_add_up_and_jump_where_they_meet() -> None:
    plan = read(K6, "script.js")
    # (1 + 10) / 2 x 30 s, then 20 x 90 s
    assert plan.load.requests_until(120) == pytest.approx(165 + 1800)
    assert plan.load.requests_until(500) == plan.load.requests_until(120)
    assert plan.load.requests_until(15) == pytest.approx((1 + 5.5) / 2 * 15)
    assert (plan.load.rate(0), plan.load.rate(15), plan.load.rate(30)) == (1, 5.5, 20)
    assert plan.load.changes(120) == (0, 30, 120)
    assert Segment(30, 1, 10) in plan.load.segments


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def f(:", "l.py:1: found broken Python (invalid syntax), expected a locustfile"),
        ("x = " + "(" * 1000 + ")" * 1000, "found broken Python (too many nested parentheses)"),
        ("x = '\0'", "found broken Python ("),
    ],
)
def test_a_locustfile_that_is_no_python_is_refused(text, said) -> None:
    with pytest.raises(ConfigError) as caught:
        read_plan(text, "l.py", lambda _: "")
    assert said in str(caught.value)
