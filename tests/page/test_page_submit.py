"""From numbers to a proved result: every way to say the costs, downloads, the keyboard."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_service import Relay, Service
from page_steps import choose, give, paste, points, submit, wait_text
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

import bigsap
from bigsap.option_table import OPTIONS
from gate import until


def best(cost: np.ndarray[Any, Any], maximize: bool = False) -> float:
    return float(cost[linear_sum_assignment(cost, maximize)].sum())


def cost_shown(page: Any) -> float:
    said = wait_text(page, "#verdict", "The assignment costs")
    found = re.search(r"costs (-?[\d,.]+?)\.\n", said + "\n")
    assert found, said
    return float(found.group(1).replace(",", ""))


def test_two_csv_sets_from_files_to_download(
    opened: Callable[..., Any], service: Service, written: Callable[..., str], tmp_path: Path
) -> None:
    x, y = points(1, 60), points(2, 80)
    page = opened(service.url)
    give(page, "First set", written("x.csv", x))
    give(page, "Second set", written("y.csv", y))
    page.get_by_label("Metric").select_option("euclidean")
    page.get_by_label("Label").fill("sixty to eighty")
    needs = wait_text(page, "#estimate", "Memory")
    assert re.search("60 rows . 80 columns", needs)
    assert re.search(r"about \d+ MiB", needs), needs
    assert re.search(r"Time\s+(about|less than)", needs), needs

    job = submit(page)
    expected = cdist(x, y)
    assert cost_shown(page) == pytest.approx(best(expected), rel=1e-9)
    said = page.locator("#verdict").inner_text()
    assert "smallest cost possible" in said
    assert "The certificate comes from one more pass over all 4,800 pairs" in said
    assert page.get_by_role("heading", level=1).inner_text() == "sixty to eighty"

    page.locator("#matching[data-drawn='60']").wait_for()
    assert "all 60 links" in page.locator("#matching canvas").get_attribute("aria-label")
    inked = page.evaluate(
        "(() => { const c = document.querySelector('#matching canvas');"
        "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return d.reduce((n, v, k) => n + (k % 4 === 3 && v > 0 ? 1 : 0), 0); })()"
    )
    assert inked > 1000

    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download col4row as npy").click()
    assert waiting.value.suggested_filename == f"{job}-col4row.npy"
    waiting.value.save_as(tmp_path / "col4row.npy")
    columns = np.load(tmp_path / "col4row.npy")
    assert expected[np.arange(60), columns].sum() == pytest.approx(best(expected))
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download the whole result as npz").click()
    waiting.value.save_as(tmp_path / "result.npz")
    assert bigsap.Result.load(tmp_path / "result.npz").col4row.tolist() == columns.tolist()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download v as CSV").click()
    waiting.value.save_as(tmp_path / "v.csv")
    text = (tmp_path / "v.csv").read_text().split()
    assert len([line for line in text if not line[0].isalpha()]) == 80


def test_npy_sets_too_large_for_the_spec_are_uploaded(
    opened: Callable[..., Any], service: Service, tmp_path: Path
) -> None:
    x, y = points(3, 6000), np.asfortranarray(points(4, 6000).astype("f4"))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    page = opened(service.url)
    give(page, "First set", str(tmp_path / "x.npy"))
    give(page, "Second set", str(tmp_path / "y.npy"))
    wait_text(page, "fieldset >> nth=2", r"Uploaded \(46\.9 KiB\)")
    wait_text(page, "#estimate", "6,000 rows . 6,000 columns")
    job = submit(page)
    found = service.wait_for(job, "succeeded")
    assert found["shape"] == [6000, 6000]
    result = service.get(f"/v1/jobs/{job}/result").json()
    cost_shown(page)
    drawn = page.locator("#matching[data-drawn]")
    drawn.wait_for()
    assert int(drawn.get_attribute("data-drawn")) == 3000  # every other link
    columns = service.get(f"/v1/jobs/{job}/result/col4row", headers={"Accept": "application/x-npy"})
    (tmp_path / "c.npy").write_bytes(columns.content)
    chosen = y.astype("f8")[np.load(tmp_path / "c.npy")]
    assert ((x - chosen) ** 2).sum() == pytest.approx(result["objective"])


def test_an_upload_goes_on_after_a_broken_connection(
    opened: Callable[..., Any], service: Service, relay: Relay, tmp_path: Path
) -> None:
    values = points(9, 150_000)  # three of the blocks that this service takes
    np.save(tmp_path / "x.npy", values)
    page = opened(relay.url)
    page.quiet = False
    arrays = {one["id"] for one in service.get("/v1/arrays").json()["arrays"]}
    sent: list[str] = []

    def second_is_lost(route: Any) -> None:
        sent.append(route.request.url)
        if len(sent) == 2:
            relay.cut()
            relay.up()  # before the block is sent again, at once or late
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route("**/rows/*", second_is_lost)
    group = page.get_by_role("group", name=re.compile("First set"))
    group.locator("input[type=file]").set_input_files(tmp_path / "x.npy")
    group.get_by_text("Uploaded (2.3 MiB)").wait_for()
    (new,) = {one["id"] for one in service.get("/v1/arrays").json()["arrays"]} - arrays
    assert len(sent) == 4  # one of three blocks again
    found = service.get(f"/v1/arrays/{new}").json()
    assert found["sha256"] == hashlib.sha256(values.tobytes()).hexdigest()
    # Another choice takes the unused array back.
    paste(page, "First set", "1 2\n3 4")
    group.get_by_text("2 points in 2 dimensions").wait_for()
    until(lambda: service.get(f"/v1/arrays/{new}").status_code == 404)


def test_a_pasted_matrix_with_forbidden_pairs_maximised(opened: Callable[..., Any], service: Service) -> None:
    page = opened(service.url)
    choose(page, "A matrix")
    paste(page, "Cost matrix", "4 1 -inf\n2 0 5\n3 2 2\n")
    page.get_by_text("Options", exact=True).click()
    page.get_by_role("checkbox", name="Maximise").check()
    wait_text(page, "#estimate", "3 rows . 3 columns")
    submit(page)
    assert cost_shown(page) == best(np.array([[4, 1, -9e9], [2, 0, 5], [3, 2, 2]]), True)
    assert "largest cost possible" in page.locator("#verdict").inner_text()


def test_every_option_of_the_table_is_there_and_is_sent(opened: Callable[..., Any], service: Service) -> None:
    page = opened(service.url)
    choose(page, "A matrix")
    paste(page, "Cost matrix", "4 1 3\n2 0 5\n3 2 2\n")
    page.get_by_text("Options", exact=True).click()
    page.get_by_text("More options", exact=True).click()
    for option in OPTIONS:
        assert page.get_by_label(option.label, exact=True).is_visible(), option.name
    page.get_by_label("Method", exact=True).select_option("compressed")
    page.get_by_label("Seed", exact=True).fill("7")
    page.get_by_role("checkbox", name="Epsilon phases").uncheck()
    wait_text(page, "#estimate", "3 rows . 3 columns")
    with page.expect_request(lambda request: request.method == "POST") as asked:
        submit(page)
    assert asked.value.post_data_json["options"] == {"method": "compressed", "seed": 7, "epsilon": False}
    assert cost_shown(page) == 5


def ranking_form(page: Any, asked: str) -> Any:
    """Fill in a matrix and how many assignments are ranked; return that field."""
    choose(page, "A matrix")
    paste(page, "Cost matrix", "4 1 3\n2 0 5\n3 2 2\n")
    wait_text(page, "#estimate", "3 rows . 3 columns")
    page.get_by_text("Options", exact=True).click()
    page.get_by_text("More options", exact=True).click()
    field = page.get_by_label("Best assignments", exact=True)
    field.fill(asked)
    return field


@pytest.mark.parametrize(
    ("asked", "heading"), [("4", "Ranked: 4 assignments"), ("9", "Ranked: 6 assignments, all there are")]
)
def test_the_best_assignments_are_ranked(
    opened: Callable[..., Any], service: Service, asked: str, heading: str
) -> None:
    page = opened(service.url)
    ranking_form(page, asked)
    job = submit(page)
    page.locator("#ranking summary").click()
    assert page.locator("#ranking summary").inner_text() == heading
    expected = bigsap.solve_k_best([[4, 1, 3], [2, 0, 5], [3, 2, 2]], int(asked)).costs.tolist()
    assert [float(text) for text in page.locator("#ranking li").all_inner_texts()] == expected
    assert page.get_by_label("Download k_col4row as CSV").is_visible()
    assert service.get(f"/v1/jobs/{job}").json()["k_best"] == int(asked)


@pytest.mark.parametrize("asked", ["many", "0"])
def test_a_number_of_assignments_that_cannot_be_is_marked(
    opened: Callable[..., Any], service: Service, asked: str
) -> None:
    page = opened(service.url)
    page.quiet = False
    field = ranking_form(page, asked)
    page.get_by_role("button", name="Submit the job").click()
    page.locator(".field.invalid").wait_for()
    assert field.get_attribute("aria-invalid") == "true"


def test_an_expression_fills_in_its_size(
    opened: Callable[..., Any], service: Service, written: Callable[..., str]
) -> None:
    x, y = points(5, 20), points(6, 25)
    page = opened(service.url)
    choose(page, "An expression")
    page.get_by_label("Cost of row i and column j").fill("abs(x[i,0] - y[j,1]) + 0.25*abs(i - j)")
    give(page, "Array x", written("x.csv", x))
    give(page, "Array y", written("y.csv", y))
    assert page.get_by_label("Rows (n)").input_value() == "20"
    assert page.get_by_label("Columns (m)").input_value() == "25"
    submit(page)
    i, j = np.ogrid[:20, :25]
    expected = np.abs(x[:, :1] - y[:, 1]) + 0.25 * np.abs(i - j)
    assert cost_shown(page) == pytest.approx(best(expected), rel=1e-9)


def test_numbers_may_be_typed_as_they_are_shown(opened: Callable[..., Any], service: Service) -> None:
    page = opened(service.url)
    choose(page, "An expression")
    page.get_by_label("Cost of row i and column j").fill("abs(i - j)")
    page.get_by_label("Rows (n)").fill("1,234,000")
    page.get_by_label("Columns (m)").fill("4000")
    wait_text(page, "#estimate", "1,234,000 rows . 4,000 columns")


def test_a_decimal_comma_is_no_thousand(opened: Callable[..., Any], service: Service) -> None:
    page = opened(service.url)
    choose(page, "A matrix")
    paste(page, "Cost matrix", "4 1\n2 0")
    wait_text(page, "#estimate", "2 rows . 2 columns")  # its dry run is over
    page.get_by_text("Options", exact=True).click()
    for typed, gap in (("0,125", 0.125), ("2,5", 2.5), ("-1,500.25", -1500.25)):
        with page.expect_request(lambda request: "dry_run" in request.url) as asked:
            page.get_by_label("Gap").fill(typed)
        assert asked.value.post_data_json["options"]["gap"] == gap
        page.quiet = False  # a negative gap is refused


def test_a_json_document_and_an_infeasible_problem_in_words(
    opened: Callable[..., Any], service: Service
) -> None:
    page = opened(service.url)
    choose(page, "A JSON document")
    page.get_by_role("button", name="Fill in an example").click()
    document = page.get_by_label("Job document (JSON)").input_value()
    document = document.replace('"threshold": 3', '"threshold": 0.5')
    page.get_by_label("Job document (JSON)").fill(document)
    submit(page)
    said = wait_text(page, "#verdict", "no complete assignment")
    assert "too many pairs are forbidden" in said
    assert page.locator("#job-state").inner_text().strip() == "finished"


def test_a_json_document_is_sent_as_it_was_typed(opened: Callable[..., Any], service: Service) -> None:
    """Numbers beyond 2**53, whatever else is chosen on the page; its own options win."""
    large = 2**53 + 1
    page = opened(service.url)
    choose(page, "A JSON document")
    text = (
        ' { "cost" :{"type":"array", "values":[[9007199254740993, 10], [ 1,  5]]},\n'
        '"label": "{\\"a, b\\": [",'
        ' "options": {"unassigned_cost": [9007199254740993, 7],\t"gap": 0.50 }}'
    )
    page.get_by_text("Options", exact=True).click()
    page.get_by_label("Gap").fill("3")
    page.get_by_label("Time limit (s)").fill("200")
    page.get_by_role("textbox", name="Label").fill("not this one")
    with page.expect_request(lambda request: "dry_run" in request.url) as asked:
        page.get_by_label("Job document (JSON)").fill(text)
    sent = asked.value.post_data
    for part in ("[[9007199254740993, 10], [ 1,  5]]", "[9007199254740993, 7]", "0.50"):
        assert part in sent
    found = json.loads(sent)
    assert found["label"] == '{"a, b": ['
    assert found["options"] == {"unassigned_cost": [large, 7], "gap": 0.5, "time_limit_s": 200}
    page.get_by_label("Job document (JSON)").fill(
        '{"cost": {"type": "array", "values": [[9007199254740993]]}}'
    )
    page.get_by_label("Gap").fill("")
    job = submit(page)
    wait_text(page, "#verdict", "smallest cost possible")
    assert service.get(f"/v1/jobs/{job}/result").json()["objective"] == large
    assert service.get(f"/v1/jobs/{job}").json()["label"] == "not this one"


def test_everything_by_keyboard(opened: Callable[..., Any], service: Service) -> None:
    page = opened(service.url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # two point sets -> a matrix
    assert page.get_by_role("radio", name="A matrix").is_checked()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "file"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # unfold "or paste numbers"
    page.keyboard.press("Tab")
    page.keyboard.type("4 1 3\n2 0 5\n3 2 2")
    wait_text(page, "#estimate", "3 rows . 3 columns")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Submit the job":
            break
    else:
        raise AssertionError("the button is not reached by Tab")
    # What has the focus can be seen to have it.
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("#/jobs/job_"))
    assert cost_shown(page) == 5
    assert page.evaluate("document.activeElement.tagName") == "H1"


@pytest.mark.slow
def test_a_job_over_several_workers(
    opened: Callable[..., Any], start_server: Callable[..., Any], tmp_path: Path
) -> None:
    """The page asks for it, shows what is expected of it, and who did what."""
    service = start_server(workers=2)
    page = opened(service.url)
    points = {"type": "points", "x": [[k, 2 * k % 7] for k in range(50)]}
    points["y"] = points["x"]
    cost = {"type": "sum", "terms": [points, points]}  # without bounds, which would keep it here
    page.get_by_label("A JSON document").check()
    page.get_by_role("textbox", name=re.compile("JSON|Document|document")).first.fill(
        json.dumps({"cost": cost})
    )
    page.locator("summary", has_text=re.compile("^Options$")).click()
    page.get_by_label("Spread over workers").check()
    needs = wait_text(page, "#estimate", "With one worker")
    assert re.search(r"Workers\s+2", needs), needs
    job = submit(page)
    wait_text(page, "#verdict", "smallest cost possible")
    with service.client() as client:
        assert client.get(f"/v1/jobs/{job}").json()["spread"] is True
    assert re.search(r"Rows by worker\s+\d+", wait_text(page, "#job-facts", "Rows by worker"))
    page.locator("summary", has_text="About this job").click()
    assert "all idle workers" in page.locator("main").inner_text()
