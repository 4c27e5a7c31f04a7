"""The live screen of `gpuscale top`: tables that are taken again and again, sorted, filtered, looked into."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.pages.words import plain_text
from gpuscale.base.words import printable
from gpuscale.ops.top import TABLES, Picture, Reader, Table, WorkloadRow, overview

_TABLE_MARGIN = 4
"""Letters beside a table: before its first cell, after its last, and its scroll bar."""
_MARKS = {True: "▼", False: "▲"}


Explain = Callable[[Any], Awaitable[Sequence[str]]]
"""Returns what there is to say of a workload's row, such as what its HPA would decide and why."""


class _Details(ModalScreen[None]):
    """All that is known of one row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Back"),
    ]
    DEFAULT_CSS = """
    _Details { align: center middle; }
    _Details > VerticalScroll {
        width: 90%; height: 85%; border: round $primary; padding: 0 1; background: $surface;
    }
    """

    def __init__(
        self, title: str, lines: Sequence[str], more: Awaitable[Sequence[str]] | None
    ) -> None:
        super().__init__()
        self._title = title
        self._lines = list(lines)
        self._more = more

    def compose(self) -> ComposeResult:
        with VerticalScroll() as box:
            box.border_title = plain_text(self._title)
            yield Static(id="words")
        yield Footer()

    def on_mount(self) -> None:
        self._show("" if self._more is None else "asking the cluster ...")
        if self._more is not None:
            self._read(self._more)

    @work
    async def _read(self, more: Awaitable[Sequence[str]]) -> None:
        try:
            self._lines += ["", *(await more)]
        except GpuscaleError as error:
            self._lines += ["", str(error)]
        self._show("")

    def _show(self, last: str) -> None:
        lines = [*self._lines, *([last] if last else [])]
        self.query_one("#words", Static).update(Text("\n".join(map(printable, lines))))


class TopApp(App[None]):
    """Shows pictures until one quits.

    Args:
        reader: takes them.
        every_s: seconds from one picture to the next.
        explain: says more of a workload; None where nothing can be asked.
    """

    TITLE: str | None = "gpuscale top"
    AUTO_FOCUS: ClassVar[str | None] = "DataTable"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #overview { height: auto; padding: 0 1; }
    #unseen { height: auto; max-height: 4; padding: 0 1; color: $text-warning; }
    #filter { display: none; height: 3; }
    TabbedContent { height: 1fr; }
    TabPane { padding: 0; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("space", "pause", "Pause"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort by"),
        Binding("r", "reverse", "Reverse"),
        *(
            Binding(str(index + 1), f"table({index})", table.name, show=False)
            for index, table in enumerate(TABLES)
        ),
    ]

    def __init__(self, reader: Reader, every_s: float, explain: Explain | None = None) -> None:
        super().__init__()
        self._reader = reader
        self._every_s = every_s
        self._explain = explain
        self._picture: Picture | None = None
        self._fault = ""
        self._is_paused = False
        self._is_looking = False
        self._wanted = ""
        self._sorting: dict[str, tuple[int, bool]] = {}
        """By table: the column it is sorted by, and whether that is turned around."""

    def compose(self) -> ComposeResult:
        yield Static("looking ...", id="overview")
        yield Input(
            placeholder="show rows with this text; Enter to go on, Escape for all", id="filter"
        )
        with TabbedContent(id="tables"):
            for table in TABLES:
                with TabPane(table.name, id=table.name):
                    yield DataTable(id=f"table-{table.name}", cursor_type="row", zebra_stripes=True)
        yield Static(id="unseen")
        yield Footer()

    def on_mount(self) -> None:
        self._look()
        self.set_interval(self._every_s, self._look_again)

    def _look_again(self) -> None:
        # A look that takes longer than the time between two goes on: begun anew, it would never end.
        if not (self._is_paused or self._is_looking):
            self._look()

    @work
    async def _look(self) -> None:
        self._is_looking = True
        try:
            self._picture = await self._reader.look()
            self._fault = ""
        except GpuscaleError as error:
            self._fault = plain_text(error)
        finally:
            self._is_looking = False
        self._show()

    # What is shown

    def _show(self) -> None:
        if not self.query("#overview"):
            return  # A picture came before the screen is there, or after it is gone.
        picture = self._picture
        line = Text()
        if picture is not None:
            moment = datetime.fromtimestamp(picture.at_ms / 1000).astimezone()
            line.append(overview(picture), "bold")
            line.append(f"\n{plain_text(picture.source)}, {moment:%H:%M:%S}", "dim")
        if self._is_paused:
            line.append("  paused", "bold yellow")
        if self._wanted:
            line.append(f"  only rows with “{self._wanted}”", "bold yellow")
        if self._fault:
            before = "\n" if picture is not None else ""
            line.append(f"{before}no new picture: {self._fault}", "bold red")
        self.query_one("#overview", Static).update(line)
        unseen = () if picture is None else picture.unseen
        below = self.query_one("#unseen", Static)
        below.update(Text("\n".join(map(plain_text, unseen))))
        below.display = bool(unseen)
        if picture is not None:
            for table in TABLES:
                self._fill(table, picture)

    def _fill(self, table: Table, picture: Picture) -> None:
        widget = self.query_one(f"#table-{table.name}", DataTable)
        column, turned = self._sorting.get(table.name, (None, False))
        rows = self._rows(table, picture)
        count = len(table.rows(picture))
        tab = self.query_one(TabbedContent).get_tab(table.name)
        tab.label = Text(f"{table.name} {count}")
        fitting = table.fitting(rows, max(1, self.size.width - _TABLE_MARGIN))
        at = widget.cursor_row
        top = widget.scroll_y
        widget.clear(columns=True)
        for shown, width in zip(fitting.columns, fitting.widths, strict=True):
            is_sorted = column is not None and shown is table.columns[column]
            mark = _MARKS[shown.falls != turned] if is_sorted else ""
            widget.add_column(Text(f"{shown.head}{mark}"), width=max(width, len(shown.head + mark)))
        if not rows:
            words = table.nothing if not self._wanted else "no row has that text"
            widget.add_row(Text(words), *("" for _ in fitting.columns[1:]))
        for row in rows:
            cells = zip(fitting.columns, fitting.cells(row), strict=True)
            widget.add_row(
                *(
                    Text(cell, justify="right" if each.least is None else "left")
                    for each, cell in cells
                )
            )
        widget.move_cursor(row=min(at, max(0, len(rows) - 1)), scroll=False)
        widget.scroll_to(y=top, animate=False)

    def _rows(self, table: Table, picture: Picture) -> list[Any]:
        column, turned = self._sorting.get(table.name, (None, False))
        rows = table.sorted_rows(picture, column, self._wanted)
        return rows[::-1] if turned else rows

    def on_resize(self) -> None:
        self._show()

    # What one presses

    @property
    def _table(self) -> Table:
        active = self.query_one(TabbedContent).active
        return next(each for each in TABLES if each.name == active)

    def action_table(self, index: int) -> None:
        self.query_one(TabbedContent).active = TABLES[index].name
        self.query_one(f"#table-{TABLES[index].name}", DataTable).focus()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._show()

    def action_sort(self) -> None:
        """Sort by the next column, and after the last one as it came."""
        table = self._table
        column, _ = self._sorting.get(table.name, (-1, False))
        if column + 1 < len(table.columns):
            self._sorting[table.name] = (column + 1, False)
        else:
            self._sorting.pop(table.name, None)
        self._show()

    def action_reverse(self) -> None:
        table = self._table
        if table.name in self._sorting:
            column, turned = self._sorting[table.name]
            self._sorting[table.name] = (column, not turned)
            self._show()

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._wanted = event.value.strip()
        self._show()

    def on_input_submitted(self) -> None:
        self._leave_filter()

    def on_key(self, event: Any) -> None:  # noqa: ANN401 - textual's Key
        if event.key == "escape" and self.query_one("#filter", Input).display:
            self.query_one("#filter", Input).value = ""
            self._leave_filter()

    def _leave_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(f"#table-{self._table.name}", DataTable).focus()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        table = self._table
        rows = [] if self._picture is None else self._rows(table, self._picture)
        if event.cursor_row >= len(rows):
            return
        row = rows[event.cursor_row]
        is_workload = isinstance(row, WorkloadRow)
        more = self._explain(row) if self._explain is not None and is_workload else None
        self.push_screen(_Details(table.columns[0].text(row), table.details(row), more))
