"""JMeter test plans (.jmx): the first enabled thread group, its timers, and its HTTP requests.

Rates come from Throughput Shaping, Constant and Precise Throughput Timers and from Arrivals Thread Groups;
other groups are users who wait for answers.

Source: Apache JMeter 5.6 (thread groups, timers, HTTPSamplerProxy, HTTP Request Defaults); jmeter-plugins:
kg.apc.jmeter.threads.UltimateThreadGroup, kg.apc.jmeter.timers.VariableThroughputTimer and
com.blazemeter.jmeter.threads.{concurrency,arrivals}, as files in Blazemeter/taurus 78b041a hold them.
"""

import itertools
import re
from collections.abc import Iterator
from urllib.parse import quote, urlencode

from gpuscale.load.plans.types import (
    MAX_USERS,
    ForeignPlan,
    PlanFile,
    PlannedRequest,
    Segment,
    closed_plan,
    of_one_server,
    open_plan,
)
from gpuscale.load.plans.xml import Element, parse_xml

TOOL = "JMeter"
_PLAIN = "ThreadGroup"
_ULTIMATE = "kg.apc.jmeter.threads.UltimateThreadGroup"
_CONCURRENCY = "com.blazemeter.jmeter.threads.concurrency.ConcurrencyThreadGroup"
_ARRIVALS = "com.blazemeter.jmeter.threads.arrivals.ArrivalsThreadGroup"
_FREE_FORM = "com.blazemeter.jmeter.threads.arrivals.FreeFormArrivalsThreadGroup"
_SHAPER = "kg.apc.jmeter.timers.VariableThroughputTimer"
_STRUCTURE = ("HTTPSamplerProxy", "HeaderManager", "ResultCollector", "LoopController")
_DOING = ("Sampler", "Controller", "Extractor", "PreProcessor", "PostProcessor")
_REFERENCE = re.compile(r"\$\{(\w+)\}")
_PROPERTIES = (
    re.compile(r"\$\{__P\([^,()]*,([^,()]*)\)\}"),
    re.compile(r"\$\{__property\([^,()]*,[^,()]*,([^,()]*)\)\}"),
)
"""With a default, which stands where JMeter gets no `-J`."""
_UNIT_S = {"S": 1.0, "M": 60.0}


def read_jmeter(text: str, name: str) -> ForeignPlan:
    """Return the load of a JMeter test plan.

    Raises:
        ConfigError: it is no XML, has no thread group, or a value that can't be read.
    """
    source = PlanFile(name)
    root = parse_xml(text, name)
    if root.tag != "jmeterTestPlan":
        source.refuse(root.line, None, f"<{root.tag}>", "<jmeterTestPlan>")
    return _Reader(source, root).plan()


def _pairs(tree: Element) -> Iterator[tuple[Element, Element | None]]:
    """Yield each enabled element of a hashTree with the hashTree that belongs to it."""
    children = tree.children
    for index, element in enumerate(children):
        if element.tag == "hashTree" or element.attributes.get("enabled") == "false":
            continue
        after = children[index + 1] if index + 1 < len(children) else None
        yield element, after if after is not None and after.tag == "hashTree" else None


def _walk(tree: Element | None) -> Iterator[Element]:
    """Yield the enabled elements of a hashTree and of all inside it, in their order."""
    if tree is None:
        return
    for element, own in _pairs(tree):
        yield element
        yield from _walk(own)


def _each(arrivals: list[Segment], requests: tuple[PlannedRequest, ...]) -> list[Segment]:
    """Return the rate of requests, where each arrival sends all of them."""
    count = max(1, len(requests))
    return [Segment(each.length_s, count * each.first, count * each.last) for each in arrivals]


class _Reader:
    def __init__(self, source: PlanFile, root: Element) -> None:
        self._source, self._root = source, root
        self._variables: dict[str, str] = {}

    def plan(self) -> ForeignPlan:
        top = next((each for each in self._root.children if each.tag == "hashTree"), None)
        below = [own for _, own in _pairs(top)] if top is not None else []
        tree = next((own for own in below if own is not None), None)
        everything = [*_walk(top)]
        for element in everything:
            if element.tag in ("TestPlan", "Arguments"):
                self._learn(element)
        groups = [(e, own) for e, own in _pairs(tree) if "ThreadGroup" in e.tag] if tree else []
        if not groups:
            self._source.refuse(self._root.line, None, "no enabled thread group", "one")
        for group, _ in groups[1:]:
            self._leave_out(group, "a further thread group is not taken over")
        group, own = groups[0]
        inside = [*_walk(own)]
        shared = [e for e, _ in _pairs(tree)] if tree else []
        requests = self._requests(inside, [*shared, *inside])
        rates = self._rates_of_timers([*shared, *inside])
        if rates is not None:
            return self._paced(group, rates, requests)
        match group.tag:
            case "com.blazemeter.jmeter.threads.arrivals.ArrivalsThreadGroup":
                arrivals = self._target_level(group, per_unit=True)
                return open_plan(self._source, TOOL, _each(arrivals, requests), requests)
            case "com.blazemeter.jmeter.threads.arrivals.FreeFormArrivalsThreadGroup":
                arrivals = self._free_form(group)
                return open_plan(self._source, TOOL, _each(arrivals, requests), requests)
        return closed_plan(self._source, TOOL, self._users(group), requests)

    def _paced(
        self, group: Element, rates: list[Segment], requests: tuple[PlannedRequest, ...]
    ) -> ForeignPlan:
        """Return rates for the thread group's duration, if the timer has none."""
        what = "the thread group's users, which bound the rate, are not taken over"
        self._leave_out(group, what)
        if all(each.length_s for each in rates):
            return open_plan(self._source, TOOL, rates, requests)
        length_s = sum(each.length_s for each in self._users(group))
        rate = rates[0].first
        return open_plan(self._source, TOOL, [Segment(length_s, rate, rate)], requests)

    # Users

    def _users(self, group: Element) -> list[Segment]:
        """Return the number of users over time."""
        if group.tag == _ULTIMATE:
            return self._ultimate(group)
        if group.tag == _CONCURRENCY:
            return self._target_level(group, per_unit=False)
        if group.tag != _PLAIN:
            self._source.refuse(group.line, None, group.tag, "a thread group that is known here")
        users = self._number(group, "ThreadGroup.num_threads", most=MAX_USERS)
        ramp_s = self._number(group, "ThreadGroup.ramp_time", default=0)
        if self._text(group, "ThreadGroup.scheduler") != "true":
            self._leave_out(group, "its loops are not taken over; say how long with --for")
            return [Segment(0.0, users, users)]
        length_s = self._number(group, "ThreadGroup.duration")
        ramp_s = min(ramp_s, length_s)
        segments = [Segment(ramp_s, 0, users), Segment(length_s - ramp_s, users, users)]
        return [each for each in segments if each.length_s]

    def _ultimate(self, group: Element) -> list[Segment]:
        """Return the sum of rows: users, initial delay, start-up, hold and shutdown times."""
        rows = []
        for row in self._rows(group, "ultimatethreadgroupdata", 5):
            users, delay, start, hold, down = row
            rows.append(
                (users, delay, delay + start, delay + start + hold, delay + start + hold + down)
            )
        edges = sorted({0.0, *(edge for row in rows for edge in row[1:])})
        if len(edges) > 10_000:
            self._source.refuse(group.line, None, f"{len(rows)} rows", "at most 2 500")

        def users_at(t: float, *, after: bool) -> float:
            total = 0.0
            for users, begin, full, fall, gone in rows:
                if full <= t < fall or (t == fall and not after and full < fall):
                    total += users
                elif begin <= t < full or (t == full and not after and begin < full):
                    total += users * (t - begin) / (full - begin)
                elif fall <= t < gone or (t == gone and not after and fall < gone):
                    total += users * (gone - t) / (gone - fall)
            return total

        pairs = itertools.pairwise(edges)
        return [Segment(b - a, users_at(a, after=True), users_at(b, after=False)) for a, b in pairs]

    def _target_level(self, group: Element, *, per_unit: bool) -> list[Segment]:
        """Return ramp, steps and hold of blazemeter's groups; arrivals are per unit of time."""
        unit_s = _UNIT_S.get(self._text(group, "Unit") or "M")
        if unit_s is None:
            self._source.refuse(group.line, "Unit", self._text(group, "Unit"), "S or M")
        level = self._number(group, "TargetLevel", most=MAX_USERS) / (unit_s if per_unit else 1.0)
        ramp_s = self._number(group, "RampUp", default=0) * unit_s
        hold_s = self._number(group, "Hold", default=0) * unit_s
        steps = round(self._number(group, "Steps", default=0, most=10_000))
        rising = [Segment(ramp_s, 0, level)]
        if steps and ramp_s:
            levels = [level * (index + 1) / steps for index in range(steps)]
            rising = [Segment(ramp_s / steps, each, each) for each in levels]
        segments = [*rising, Segment(hold_s, level, level)]
        return [each for each in segments if each.length_s] or [Segment(0.0, level, level)]

    def _free_form(self, group: Element) -> list[Segment]:
        unit_s = _UNIT_S.get(self._text(group, "Unit") or "M", 60.0)
        rows = self._rows(group, "Schedule", 3)
        return [Segment(length * unit_s, a / unit_s, b / unit_s) for a, b, length in rows]

    # Rates

    def _rates_of_timers(self, elements: list[Element]) -> list[Segment] | None:
        """Return the rates of the first pacing timer; a length of 0 means the group's."""
        for element in elements:
            match element.tag:
                case "kg.apc.jmeter.timers.VariableThroughputTimer":
                    rows = self._rows(element, "load_profile", 3)
                    return [Segment(length, first, last) for first, last, length in rows]
                case "ConstantThroughputTimer":
                    rate = self._number(element, "throughput") / 60
                    return [Segment(0.0, rate, rate)]
                case "PreciseThroughputTimer":
                    period_s = self._number(element, "throughputPeriod", default=3600)
                    rate = self._number(element, "throughput") / (period_s or 1.0)
                    return [Segment(self._number(element, "duration", default=0), rate, rate)]
            if element.tag.endswith("Timer"):
                self._leave_out(
                    element, f"{element.tag}, a wait between requests, is not taken over"
                )
            elif element.tag.endswith("Assertion"):
                self._leave_out(element, f"{element.tag} is not taken over")
        return None

    # Requests

    def _requests(
        self, inside: list[Element], visible: list[Element]
    ) -> tuple[PlannedRequest, ...]:
        for each in inside:
            if each.tag.endswith(_DOING) and each.tag not in _STRUCTURE:
                self._leave_out(each, f"{each.tag} is not taken over")
        found = [
            (request, each.line)
            for each in inside
            if each.tag == "HTTPSamplerProxy"
            and (request := self._request(each, visible)) is not None
        ]
        return of_one_server(self._source, found)

    def _request(self, sampler: Element, visible: list[Element]) -> PlannedRequest | None:
        defaults = [e for e in visible if e.attributes.get("guiclass") == "HttpDefaultsGui"]

        def of(name: str) -> str:
            own = self._text(sampler, f"HTTPSampler.{name}")
            others = (self._text(each, f"HTTPSampler.{name}") for each in defaults)
            return own or next(filter(None, others), "")

        host, path, protocol, port = of("domain"), of("path"), of("protocol") or "http", of("port")
        method = of("method") or "GET"
        if not host and not path.startswith(("http://", "https://")):
            self._leave_out(sampler, "the request has no server name; name the URL")
            return None
        url = (
            path
            if "://" in path
            else f"{protocol}://{host}{f':{port}' if port else ''}/{path.lstrip('/')}"
        )
        url, body = self._with_arguments(sampler, url, method)
        if any("${" in text for text in (url, body)):
            self._leave_out(sampler, "a request with a variable of unknown value is not taken over")
            return None
        headers: list[tuple[str, str]] = []
        for manager in (each for each in visible if each.tag == "HeaderManager"):
            listed = manager.named("HeaderManager.headers")
            headers += (
                (self._text(each, "Header.name"), self._text(each, "Header.value"))
                for each in (listed.children if listed is not None else ())
            )
        kept = tuple((name, value) for name, value in headers if name and "${" not in value)
        return PlannedRequest(url, method.upper(), kept, body.encode())

    def _with_arguments(self, sampler: Element, url: str, method: str) -> tuple[str, str]:
        """Return URL and body, with the sampler's arguments added to the right one."""
        holder = sampler.named("HTTPsampler.Arguments")
        listed = holder.named("Arguments.arguments") if holder is not None else None
        pairs = [
            (self._text(each, "Argument.name"), self._text(each, "Argument.value"))
            for each in (listed.children if listed is not None else ())
        ]
        if self._text(sampler, "HTTPSampler.postBodyRaw") == "true":
            return url, "".join(value for _, value in pairs)
        if not pairs:
            return url, ""
        text = urlencode(pairs, safe="${}", quote_via=quote)
        if method.upper() in ("POST", "PUT", "PATCH"):
            return url, text
        return f"{url}{'&' if '?' in url else '?'}{text}", ""

    # Values

    def _learn(self, element: Element) -> None:
        """Store user-defined variables."""
        holder = element.named("TestPlan.user_defined_variables") or element
        listed = holder.named("Arguments.arguments")
        for each in listed.children if listed is not None else ():
            name = each.prop("Argument.name")
            if name and len(self._variables) < 10_000:
                self._variables[name] = self._resolved(each.prop("Argument.value"))

    def _resolved(self, text: str) -> str:
        """Return a text with known variables replaced, and properties by their defaults."""
        for each in _PROPERTIES:
            text = each.sub(lambda found: found[1], text)
        return _REFERENCE.sub(lambda found: self._variables.get(found[1], found[0]), text)[:100_000]

    def _text(self, element: Element, name: str) -> str:
        return self._resolved(element.prop(name))

    def _number(
        self, element: Element, name: str, default: float | None = None, most: float = 1e9
    ) -> float:
        text = self._text(element, name)
        if not text and default is not None:
            return default
        own = element.named(name)
        line = element.line if own is None else own.line
        return self._source.number(text, line, name, most)

    def _rows(self, element: Element, name: str, width: int) -> list[list[float]]:
        """Return the rows of a plugin's table, with references to earlier cells resolved."""
        table = element.named(name)
        rows = []
        for row in table.children if table is not None else ():
            if any("reference" in cell.attributes for cell in row.children):
                self._source.refuse(row.line, name, "a reference to another cell", "its number")
            cells = [self._resolved(cell.text.strip()) for cell in row.children]
            if len(cells) < width:
                self._source.refuse(row.line, name, f"{len(cells)} columns", f"{width} columns")
            rows.append([self._source.number(cell, row.line, name, 1e9) for cell in cells[:width]])
        if not rows:
            self._source.refuse(element.line, name, "no rows", "one or more")
        return rows

    def _leave_out(self, element: Element, what: str) -> None:
        title = element.attributes.get("testname")
        self._source.leave_out(element.line, f"{title}: {what}" if title else what)
