"""The report on a run: what it says against what the run holds, that nothing in it comes alive, and how a browser shows it."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="reports need the extra plots")
pytest.importorskip("pydantic", reason="reports need the extra runs")

import tiltwalk as tw
from tests.browser import Browser, browser, missing
from tests.run_cases import KillAfter, Killed, copied, small
from tiltwalk import cli, runs
from tiltwalk.report import markup
from tiltwalk.report.subject import number
from tiltwalk.runs import session

EVIL = ('<script>document.title="taken"</script>', 'b & "c"', "</title><img src=x onerror=\"document.title='taken'\">")
EMPTY = {"meta", "img", "br"}


class Page(HTMLParser):
    """A page as a flat list of elements with their attributes and text, and whatever was not closed as it was opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], list[str]]] = []
        self.open: list[tuple[str, dict[str, str], list[str]]] = []
        self.faults: list[str] = []
        self.feed(text)
        self.close()
        self.faults += [name for name, _, _ in self.open]

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        made = (tag, {key: value or "" for key, value in attrs}, [])
        self.found.append(made)
        if tag not in EMPTY:
            self.open.append(made)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, {key: value or "" for key, value in attrs}, []))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop()[0] != tag:
            self.faults.append(tag)

    def handle_data(self, data: str) -> None:
        for _, _, words in self.open:
            words.append(data)

    def all(self, *names: str) -> list[tuple[str, dict[str, str], str]]:
        return [(name, values, "".join(words)) for name, values, words in self.found if name in names]

    def text(self) -> str:
        return " ".join(self.all("body")[0][2].split())


def evil_classes(folder: Path) -> Path:
    """Three clusters in the plane, whose columns and classes have names that want to be markup."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    X = np.array([[0.0, 1.5], [1.5, -1.0], [-1.5, -1.0]])[y] + 0.6 * rng.normal(size=(60, 2))
    quoted = ['"' + name.replace('"', '""') + '"' for name in EVIL]
    lines = ["<b>a</b>,b,kind", *(f"{a:.5f},{b:.5f},{quoted[k]}" for (a, b), k in zip(X, y, strict=True))]
    path = folder / "<i>evil.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def images(folder: Path) -> Path:
    """Images of 8 x 8 in three classes: a bar at one of three heights, in noise."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 90)
    X = 0.4 * rng.uniform(size=(90, 8, 8, 1))
    X[np.arange(90), 2 * y + 1] += 0.35
    np.savez(folder / "bars.npz", X=X.astype(np.float32), y=y)
    return folder / "bars.npz"


def line(folder: Path) -> Path:
    rng = np.random.default_rng(2)
    x = rng.normal(size=50)
    path = folder / "line.csv"
    np.savetxt(path, np.c_[x, 1.5 * x - 0.7 + 0.3 * rng.normal(size=50)], delimiter=",", header="x,y", comments="")
    return path


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three finished runs with their reports, of names, of images and of values, and one that was killed in burn-in."""
    folder = tmp_path_factory.mktemp("reports")
    changes = {
        "names": [f"data.source={evil_classes(folder)}", "data.target=kind"],
        "images": [f"data.source={images(folder)}", "chains.count=1", "network.kind=mlp", "network.hidden=[6]"],
        "values": [f"data.source={line(folder)}", "loss.kind=mse"],
        "killed": [],
    }
    for name, settings in changes.items():
        path = folder / name
        if name == "killed":
            with pytest.raises(Killed):
                session.begin(small(folder, *settings), path, KillAfter(3))
        else:
            session.begin(small(folder, *settings), path, command=f"tiltwalk train {EVIL[0]}")
        tw.report.write(path)
    return {name: folder / name for name in changes}


def page(run: Path) -> Page:
    return Page((run / "report.html").read_text(encoding="utf-8"))


ALL = ("names", "images", "values", "killed")


# ---- what it says ----


def test_the_figures_of_the_test_are_those_of_the_run(cases: dict[str, Path]) -> None:
    text = page(cases["names"]).text()
    folder = runs.open(cases["names"])
    result = folder.result
    assert result is not None
    p = folder.ensemble.predict_proba(folder.data.test_X)
    assert f"{100 * result['test']['accuracy']:.2f} %" in text
    for value in (result["test"]["nll"], tw.metrics.brier(folder.data.test_y, p), result["test"]["calibration_error"]):
        assert f"{value:.4f}" in text
    assert folder.run.verdict().words in text
    assert folder.record["data"]["sha256"] in text and f"jaxlib {folder.record['versions']['jaxlib']}" in text
    error = runs.open(cases["values"]).result
    assert error is not None and number(error["test"]["rmse"]) in page(cases["values"]).text()


def test_the_settings_in_it_repeat_the_run(cases: dict[str, Path]) -> None:
    found = page(cases["names"])
    (settings,) = (text for name, values, text in found.all("pre") if values.get("aria-label") == "Settings")
    from tiltwalk.runs import config

    assert config.read(tomllib.loads(settings)) == runs.open(cases["names"]).config
    commands = [text for name, values, text in found.all("pre") if values.get("aria-label") == "Command"]
    assert commands[0] == f"tiltwalk train {EVIL[0]}"
    assert commands[1] == f"tiltwalk train --config {cases['names']}/config.toml --out {cases['names']}-again"


def test_confusion_is_a_table_with_the_counts(cases: dict[str, Path]) -> None:
    folder = runs.open(cases["images"])
    counts = tw.metrics.confusion(folder.data.test_y, folder.ensemble.predict_proba(folder.data.test_X).argmax(1), n_classes=3)
    cells = [text for _, values, text in page(cases["images"]).all("td") if "--share" in values.get("style", "")]
    assert [int(text) for text in cells] == counts.ravel().tolist()


def test_the_hardest_images_are_shown_and_described(cases: dict[str, Path]) -> None:
    folder = runs.open(cases["images"])
    p, y = folder.ensemble.predict_proba(folder.data.test_X), folder.data.test_y
    shown = [values["alt"] for _, values, _ in page(cases["images"]).all("img")]
    wrong = tw.plots.prediction.most_wrong(y, p, 12)
    assert len(shown) == min(12, len(y)) + len(wrong)
    first = tw.plots.prediction.most_uncertain(p, 1)[0]
    assert shown[0].startswith(
        f"Test image {first}: {y[first]}, predicted {p[first].argmax()} with {100 * p[first].max():.0f} %"
    )


def test_every_plot_that_applies_is_there_and_says_numbers(cases: dict[str, Path]) -> None:
    common = {"losses", "acceptance", "steps", "draws", "by-move", "position", "autocorrelation", "members", "components"}
    expected = {
        "names": common | {"reliability", "component-of-one"},
        "images": common | {"reliability"},
        "values": common | {"component-of-one", "landscape", "predicted"},
        "killed": {"losses", "acceptance", "steps"},
    }
    for name, path in cases.items():
        plots = page(path).all("svg")
        assert {values["id"] for _, values, _ in plots} == expected[name], name
        assert all(len(re.findall(r"\d", values["aria-label"])) >= 2 for _, values, _ in plots)


def test_what_does_not_apply_is_said(cases: dict[str, Path]) -> None:
    assert "this run predicts values" in page(cases["values"]).text()
    assert "is for models of two parameters; these have 9" in page(cases["names"]).text()
    early = page(cases["killed"]).text()
    for words in (
        "The run is not finished",
        "has not come to sampling",
        "No path was kept yet",
        "Not judged: the run holds 0 draws",
    ):
        assert words in early


def test_without_its_data_a_run_is_reported_on_and_says_so(cases: dict[str, Path], tmp_path: Path) -> None:
    path = copied(cases["values"], tmp_path / "elsewhere" / "deep" / "run")
    source = cases["values"].parent / "line.csv"
    kept = source.read_bytes()
    source.unlink()
    try:
        text = Page(tw.report.write(path, tmp_path / "r.html").read_text(encoding="utf-8")).text()
    finally:
        source.write_bytes(kept)
    assert "There is no test: " in text and "must be there" in text and "The landscape of the loss is left out" in text


def test_a_report_is_the_same_each_time(cases: dict[str, Path], tmp_path: Path) -> None:
    again = tw.report.write(cases["values"], tmp_path / "again.html")
    assert again.read_bytes() == (cases["values"] / "report.html").read_bytes()


# ---- what it is made of ----


@pytest.mark.parametrize("name", ALL)
def test_a_report_is_one_whole_page_that_asks_for_nothing(name: str, cases: dict[str, Path]) -> None:
    text = (cases[name] / "report.html").read_text(encoding="utf-8")
    found = Page(text)
    assert not found.faults and len(text.encode()) < 5_000_000
    assert not found.all("script", "iframe", "link", "object", "embed", "form", "base")
    for _, values, _ in found.all("a", "img", "use", "image"):
        for key in ("href", "src"):
            assert re.match(r"#[\w-]+$|data:image/png;base64,", values.get(key, "#x")), values
    assert not any(key.startswith("on") for _, values, _ in found.found for key in values)
    assert not re.search(r"url\((?!#)|@import|javascript:", text)
    (policy,) = (v["content"] for _, v, _ in found.all("meta") if v.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ") and "script-src" not in policy


@pytest.mark.parametrize("name", ALL)
def test_a_report_can_be_read_without_seeing_it(name: str, cases: dict[str, Path]) -> None:
    found = page(cases[name])
    assert found.all("html")[0][1]["lang"] == "en" and found.all("title")[0][2]
    for landmark in ("header", "nav", "main", "footer"):
        assert len(found.all(landmark)) == 1
    levels = [int(name[1]) for name, _, _ in found.all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    ids = [values["id"] for _, values, _ in found.found if "id" in values]
    assert len(ids) == len(set(ids))
    for _, values, _ in found.found:
        for key in ("href", "aria-labelledby"):
            wanted = values.get(key, "").lstrip("#") if key != "href" or values.get(key, "").startswith("#") else ""
            assert not wanted or wanted in ids, wanted
    assert all(values["alt"] for _, values, _ in found.all("img"))
    assert all(values["role"] == "img" and values["aria-label"] for _, values, _ in found.all("svg"))
    assert len(found.all("caption")) == len(found.all("table")) and all(text for _, _, text in found.all("caption"))
    assert all(values.get("scope") in ("row", "col") for _, values, _ in found.all("th"))
    assert found.all("a")[0][1]["href"] == "#main"


def test_names_from_a_run_are_text_and_nothing_else(cases: dict[str, Path]) -> None:
    found = page(cases["names"])
    text = found.text()
    for name in (*EVIL, "<b>a</b>", "<i>evil.csv"):
        assert name[:20] in text
    assert not found.all("b", "i") and "onerror" not in {key for _, values, _ in found.found for key in values}


def test_markup_escapes_what_is_not_markup() -> None:
    made = markup.element("p", "1 < 2 & ", markup.element("em", '"x"'), None, class_='a"b', data_x=None)
    assert made == '<p class="a&quot;b">1 &lt; 2 &amp; <em>&quot;x&quot;</em></p>'
    assert markup.text("a\x00b\u202ec\nd") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c\nd"
    assert Page("<p><em></p>").faults, "what is not closed is found"


# ---- on the command line ----


def test_the_command_says_what_it_wrote_and_refuses_the_rest(
    cases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.html"
    assert cli.main(["report", str(cases["killed"]), "--out", str(out)]) == 0
    assert re.fullmatch(rf"Wrote {re.escape(str(out))}: \d\.\d MB, to open in a browser\.\n", capsys.readouterr().out)
    damaged = copied(cases["killed"], tmp_path / "damaged")
    (damaged / "run.json").write_text("{}")
    led = copied(cases["killed"], tmp_path / "led")
    (led / "report.html").unlink()
    (led / "report.html").symlink_to(tmp_path / "victim")
    for words, sentence in (
        ([tmp_path / "absent"], "must be a run folder; it is not there or is a file."),
        ([tmp_path], "must be a run folder; it holds no run.json"),
        ([damaged], "run.json"),
        ([led], "it is a link."),
        ([cases["killed"], "--out", tmp_path / "x.pdf"], "report.out must be a file that ends in .html; got"),
        ([cases["killed"], "--out", tmp_path], "report.out must be a file that ends in .html; got"),
        ([cases["killed"], "--out", tmp_path / "no" / "x.html"], "report.out must be in a folder that is there;"),
    ):
        assert cli.main(["report", *map(str, words)]) == 2
        said = capsys.readouterr()
        assert sentence in said.err and said.err.count("\n") == 1 and not said.out
    assert not (tmp_path / "victim").exists()


# ---- in a browser ----

CONTRASTS = """
const channel = v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 };
const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const parsed = text => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
  const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255] };
const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
const ground = node => { const layers = [];
  for (let at = node; at; at = at.parentElement) layers.push(parsed(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]) };
const ratio = (node, ink) => { const below = ground(node);
  const pair = [light(over(ink, below)), light(below)].sort((a, b) => b - a);
  return (pair[0] + 0.05) / (pair[1] + 0.05) };
const found = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const node = texts.currentNode.parentElement;
  if (texts.currentNode.data.trim() && node.checkVisibility() && !node.closest('svg'))
    found.push([ratio(node, parsed(getComputedStyle(node).color)), node.tagName + '.' + node.className,
      texts.currentNode.data.trim().slice(0, 40)]);
}
for (const letter of document.querySelectorAll('svg use[href*="DejaVu"]'))
  found.push([ratio(letter, parsed(getComputedStyle(letter).fill)), 'letters', letter.closest('svg').id]);
return found;
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    why = missing()
    if why:
        pytest.skip(f"no browser to check the report in ({why})")
    with browser() as made:
        yield made


def address(run: Path) -> str:
    return (run / "report.html").as_uri()


@pytest.mark.parametrize("name", ALL)
def test_on_a_phone_nothing_is_wider_than_the_screen(name: str, cases: dict[str, Path], chromium: Browser) -> None:
    for width in (320, 360, 1200):
        chromium.open(address(cases[name]), width=width)
        assert chromium.evaluate("return document.documentElement.scrollWidth") <= width
        assert chromium.evaluate("return innerWidth") == width
    chromium.open(address(cases[name]), width=360)
    chromium.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<p style=\"width: 500px\">x</p>')")
    assert chromium.evaluate("return document.documentElement.scrollWidth") > 360, "what is too wide is found"


@pytest.mark.parametrize("name", ["names", "images", "values"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_by_four_and_a_half_to_one(name: str, scheme: str, cases: dict[str, Path], chromium: Browser) -> None:
    chromium.open(address(cases[name]), scheme=scheme)
    ground = chromium.evaluate("return getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme]
    found = chromium.evaluate(CONTRASTS)
    assert len(found) > 150 and any(kind == "letters" for _, kind, _ in found)
    assert [one for one in found if one[0] < 4.5] == []
    chromium.evaluate("document.querySelector('main').insertAdjacentHTML('beforeend', '<p style=\"color: #777\">faint</p>')")
    assert [one[2] for one in chromium.evaluate(CONTRASTS) if one[0] < 4.5] == ["faint"], "what is faint is found"


def test_the_page_asks_the_network_for_nothing_and_runs_nothing(cases: dict[str, Path], chromium: Browser) -> None:
    for name in ALL:
        chromium.requests(), chromium.complaints()
        chromium.open(address(cases[name]))
        assert {place.split(":")[0] for place in chromium.requests()} <= {"file", "data"}
        assert chromium.complaints() == []
        assert chromium.evaluate("return document.title") == f"Report on {name}"
    chromium.evaluate("const x = document.createElement('script'); x.text = 'document.title = 1'; document.body.append(x)")
    assert chromium.evaluate("return document.title") == "Report on killed"
    assert any("Content Security Policy" in words for words in chromium.complaints()), "a script that got in would not run"


def test_a_screen_reader_finds_a_name_for_every_image(cases: dict[str, Path], chromium: Browser) -> None:
    chromium.open(address(cases["images"]))
    nodes = [n for n in chromium.devtools("Accessibility.getFullAXTree")["nodes"] if not n.get("ignored")]
    roles: dict[str, list[str]] = {}
    for node in nodes:
        roles.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    images = [name for role in ("image", "img", "graphics-document") for name in roles.get(role, [])]
    assert len(images) >= 12 and all(images), json.dumps(roles)[:500]
    assert all(name for role in ("region", "table", "link", "heading", "navigation") for name in roles[role])


def test_the_first_key_leads_to_the_report(cases: dict[str, Path], chromium: Browser) -> None:
    chromium.open(address(cases["names"]))
    for kind in ("keyDown", "keyUp"):
        chromium.devtools("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    place = "const a = document.activeElement; return [a.getAttribute('href'), a.getBoundingClientRect().top >= 0]"
    assert chromium.evaluate(place) == ["#main", True]


def test_on_paper_it_is_black_on_white_and_shows_its_settings(cases: dict[str, Path], chromium: Browser) -> None:
    chromium.open(address(cases["names"]), scheme="dark", media="print")
    shown = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    assert chromium.evaluate(shown, "nav", "display") == "none"
    assert chromium.evaluate(shown, "body", "color") == "rgb(0, 0, 0)"
    assert chromium.evaluate(shown, "body", "backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.evaluate("return document.querySelector('details pre').checkVisibility({contentVisibilityAuto: true})")
