"""Pictures and the report: it is valid HTML, needs no network, and works in a real browser."""

import os
import re
import shutil
import tempfile
import time
from functools import cache

import numpy as np
import pytest
from problems import gaussian, quadratic

import zerovar as zv

X, S = gaussian(400, 3)
NAMES = ["mean", "<b>bold</b> & co", "theta[10]", "theta[9]"]
VALUES = np.stack([X[:, 0], np.exp(0.3 * X[:, 1]), X[:, 2] ** 2, np.sin(3 * X[:, 0])], axis=1)


@cache
def answer() -> zv.Estimate:
    return quadratic(X.reshape(2, 200, 3), S.reshape(2, 200, 3), VALUES, names=NAMES)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "out.html"
    answer().report(path)
    return path


def test_pictures(tmp_path):
    import matplotlib.pyplot as plt

    plots = {
        "forest": lambda path, dark: zv.plots.forest(answer(), path, dark=dark),
        "scatter": lambda path, dark: zv.plots.scatter(answer(), "theta[10]", path, dark=dark),
        "errors": lambda path, dark: zv.plots.errors(answer(), None, path, dark=dark),
    }
    before = plt.get_fignums()
    for name, draw in plots.items():
        for dark in (False, True):
            path = tmp_path / f"{name}{dark}.png"
            draw(path, dark)
            pixels = plt.imread(path)[..., :3]
            corner = pixels[2, 2].mean()
            assert (corner < 0.2) if dark else (corner > 0.95)
            assert pixels.std() > 0.02  # something is drawn
    assert plt.get_fignums() == before  # saved pictures are closed
    with pytest.raises(ValueError, match=r"name must be one of the integrands, mean, .*; got 'x'"):
        zv.plots.scatter(answer(), "x")


def test_a_forest_of_many_shows_some():
    """Where it stands, and how wide: the numbers that are drawn; of 60 integrands forty, with names
    that are no formulas."""
    figure = zv.plots.forest(answer())
    plain, controlled = figure.axes[0].containers
    shift = (answer().plain_value - answer().value) / answer().plain_std_error
    np.testing.assert_allclose(plain.lines[0].get_xdata(), shift)
    np.testing.assert_allclose(controlled.lines[0].get_xdata(), 0)
    ends = controlled.lines[2][0].get_segments()[3][:, 0]
    np.testing.assert_allclose(
        ends, np.array([-1.96, 1.96]) * answer().std_error[3] / answer().plain_std_error[3]
    )
    many = quadratic(
        X,
        S,
        X @ np.random.default_rng(0).normal(size=(3, 60)),
        names=[f"$x_{k}$^" for k in range(60)],
    )
    labels = [label.get_text() for label in zv.plots.forest(many).axes[0].get_yticklabels()]
    assert len(labels) == 40
    assert f"\\$x_{many.gain.argmax()}\\$^" in labels


def test_errors_fall_to_what_is_reported():
    figure = zv.plots.errors(answer(), "theta[9]")
    plain, controlled, *_ = figure.axes[0].lines
    assert plain.get_ydata()[-1] == pytest.approx(answer().plain_std_error[3])
    assert controlled.get_ydata()[-1] == pytest.approx(answer().std_error[3])
    assert plain.get_xdata()[-1] == 400


def test_a_scatter_shows_what_is_left():
    figure = zv.plots.scatter(answer(), "mean")
    above, below = figure.axes
    control, f = above.collections[0].get_offsets().T
    np.testing.assert_allclose(f, X[:, 0])
    residual = below.collections[0].get_offsets()[:, 1]
    np.testing.assert_allclose(control + residual, f)
    assert residual.std() < 1e-6 * f.std()  # a Gaussian's mean is in the span of quadratics


def test_training_curves():
    fitted = zv.fit(
        zv.Polynomial(2), zv.Sample(X, S), VALUES, solver=zv.SGD(epochs=3, progress=False)
    )
    figure = zv.plots.training(fitted)
    assert len(figure.axes[0].lines[0].get_xdata()) == 3
    with pytest.raises(ValueError, match="no training curve"):
        zv.plots.training(answer())


def test_report_is_valid_and_self_contained(page):
    import html5lib

    text = page.read_text(encoding="utf-8")
    html5lib.HTMLParser(strict=True).parse(text)  # raises at the first error
    assert "<b>bold" not in text
    sources = re.findall(r'(?:src|href|srcset)="([^"]*)"', text)
    assert sources
    assert all(source.startswith("data:") for source in sources)
    assert "fingerprint" in text
    assert str(answer().settings["fingerprint"]) in text
    assert os.listdir(page.parent) == ["out.html"]


@pytest.mark.whole
@pytest.mark.filterwarnings("ignore::zerovar.ZerovarWarning")
def test_report_of_two_hundred_is_light(tmp_path):
    many = np.tanh(X @ np.random.default_rng(1).normal(size=(3, 200)))
    chosen = zv.estimate(
        X, S, many, names=[f"theta[{k}]" for k in range(200)], family=zv.Automatic("low")
    )
    chosen.report(tmp_path / "out.html")
    assert (tmp_path / "out.html").stat().st_size < 1_000_000
    # both tables have all
    assert (tmp_path / "out.html").read_text(encoding="utf-8").count('<th scope="row"') == 400


def test_report_of_a_loaded_estimate_is_the_same(page, tmp_path):
    answer().save(tmp_path / "answer.zv")
    zv.load(tmp_path / "answer.zv").report(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()


@pytest.mark.filterwarnings("ignore::zerovar.ZerovarWarning")
def test_report_of_an_automatic_choice_says_what_was_taken(tmp_path):
    noise = np.random.default_rng(0).normal(size=400)
    chosen = zv.estimate(X, S, {"line": X[:, 0], "noise": noise}, family=zv.Automatic("low"))
    chosen.report(tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "Chosen for each estimate" in text
    assert chosen.selection.reasons[0] in text
    assert "tuned kernels: left out at low effort" in text


@pytest.mark.filterwarnings("ignore::zerovar.ZerovarWarning")
def test_report_of_intervals(tmp_path):
    posterior = zv.Posterior(X[None], S[None], {"x": X[None, :, 0]})
    zv.interval(posterior, family=zv.Automatic("low")).report(tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert '<th scope="row" data-key="x eti89_lb">' in text
    assert "x eti89_lb, x eti89_ub: by Stein&#x27;s solution for a normal." in text
    assert "picture is missing" not in text
    assert " mean" not in re.sub("<style.*?</style>|<script.*?</script>", "", text, flags=re.S)


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, where it is installed; `ZEROVAR_BROWSER=1` makes its absence a failure."""
    binary = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    driver = shutil.which("chromedriver")
    if not (binary and driver):
        text = "the report is looked at in Chromium: install chromium and chromium-driver"
        if os.environ.get("ZEROVAR_BROWSER"):
            pytest.fail(text)
        pytest.skip(text)
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (
            *(
                "headless=new",
                "no-sandbox",
                "disable-gpu",
                "no-first-run",
                "disable-background-networking",
                "disable-sync",
            ),
            *("disable-component-update", "window-size=1200,900", f"user-data-dir={profile}"),
        ):
            options.add_argument(f"--{flag}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        chrome = webdriver.Chrome(options=options, service=Service(driver))
        yield chrome
        chrome.quit()


@pytest.fixture
def opened(browser, page):
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.get(page.as_uri())
    return browser


def column(browser, number: int) -> list[str]:
    return browser.execute_script(
        "return [...document.querySelectorAll('#answers tbody tr')].map(row => "
        "row.cells[arguments[0]].textContent)",
        number,
    )


def test_browser_renders_without_complaint(opened):
    assert opened.get_log("browser") == []
    assert "4 estimates from 400 draws" in opened.title
    assert column(opened, 0) == NAMES
    sizes = opened.execute_script(
        "return [...document.images].map(image => [image.complete, image.naturalWidth])"
    )
    assert len(sizes) == 3
    assert all(complete and width > 300 for complete, width in sizes)


def test_browser_sorts(opened):
    buttons = opened.find_elements("css selector", "#answers thead button")
    buttons[0].click()
    # numbers in names by size
    assert column(opened, 0) == ["<b>bold</b> & co", "mean", "theta[9]", "theta[10]"]
    buttons[4].click()
    gains = answer().gain
    order = np.argsort(gains)
    assert column(opened, 0) == [NAMES[k] for k in order]
    buttons[4].click()
    assert column(opened, 0) == [NAMES[k] for k in order[::-1]]
    heads = opened.find_elements("css selector", "#answers thead th")
    assert [head.get_attribute("aria-sort") for head in heads] == [
        None,
        None,
        None,
        None,
        "descending",
        None,
    ]


def test_browser_sorts_by_keyboard(opened):
    from selenium.webdriver.common.keys import Keys

    button = opened.find_elements("css selector", "#answers thead button")[4]
    opened.execute_script("arguments[0].focus()", opened.find_element("css selector", ".wide"))
    for _ in range(5):  # from the table to the fifth of its heads
        opened.switch_to.active_element.send_keys(Keys.TAB)
    assert opened.switch_to.active_element == button
    rank = np.argsort(answer().gain)
    for key, order, word in (
        (Keys.ENTER, rank, "ascending"),
        (Keys.SPACE, rank[::-1], "descending"),
    ):
        opened.switch_to.active_element.send_keys(key)
        assert column(opened, 0) == [NAMES[k] for k in order]
        assert opened.switch_to.active_element == button  # whoever goes on is still there
        said = opened.execute_script("return document.querySelector('[role=status]').textContent")
        assert said == f"Sorted by gain, {word}"


def test_browser_without_scripts(browser, page):
    """Everything is there; nothing offers what only a script can do."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page.as_uri())
        assert browser.find_elements("css selector", "button") == []
        heads = [
            head.text
            for head in browser.find_elements("css selector", "#answers thead th[scope=col]")
        ]
        assert heads == ["name", "value", "error", "plain", "gain", "worth"]
        assert [
            head.text
            for head in browser.find_elements("css selector", "#answers tbody th[scope=row]")
        ] == NAMES
        assert "to sort" not in browser.find_element("css selector", "body").text
        assert browser.find_element("css selector", "#answers caption").is_displayed()
        assert browser.find_element("css selector", "img").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_browser_phone(opened):
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True},
    )
    opened.refresh()
    page, window = opened.execute_script(
        "return [document.documentElement.scrollWidth, window.innerWidth]"
    )
    assert page <= window == 360  # the table scrolls, not the page
    size = opened.execute_script(
        "return parseFloat(getComputedStyle(document.querySelector('#answers td')).fontSize)"
    )
    assert size >= 14


def test_browser_dark(opened):
    def luminance(rule: str) -> float:
        return float(np.mean([int(part) for part in re.findall(r"\d+", rule)[:3]])) / 255

    def colours():
        script = "const style = getComputedStyle(document.body), image = document.images[0];"
        return opened.execute_script(
            script + "return [style.color, style.backgroundColor, image.currentSrc]"
        )

    ink, paper, picture = colours()
    assert luminance(paper) - luminance(ink) > 0.6
    opened.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    for _ in range(50):  # the browser takes the other picture in its own time
        dark_ink, dark_paper, dark_picture = colours()
        if dark_picture != picture:
            break
        time.sleep(0.1)
    assert luminance(dark_ink) - luminance(dark_paper) > 0.6
    assert dark_picture != picture
