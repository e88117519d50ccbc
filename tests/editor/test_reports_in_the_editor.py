"""What is slow is said in the status item, and a report is shown before anybody sends it."""

import json
import re
import zipfile

from fake_project import wait_until
from playwright.sync_api import expect
from window import PATIENCE_MS, Window

#: Its constructor lasts until the test lets it go on.
SLOW = """\
import os
import time
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        while not os.path.exists(HELD):
            time.sleep(0.02)
        self.canary_of_the_source = nn.Linear(8, 4)

    def forward(self, x):
        y = self.canary_of_the_source(x)
        return y


HELD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "go_on")
if __name__ == "__main__":
    Net()(torch.zeros(2, 8))
"""


def test_the_status_item_says_why_a_trace_is_slow_and_a_report_is_shown_before_it_is_sent(window: Window) -> None:
    window.configure(**{"mase.limits.seconds": 300, "mase.inputs": {"canary_of_the_settings": "x: f32[1]"}})
    window.write("slow.py", SLOW)
    window.open("slow.py")
    told = re.compile(r"MASE: slow\.py: \s*\d+\.\d s: running it \(line 1[01] in __init__\)")
    expect(window.status).to_have_text(told, timeout=PATIENCE_MS)
    first, box = window.status.text_content() or "", window.status.bounding_box()
    expect(window.status).not_to_have_text(first, timeout=PATIENCE_MS)  # a second later
    expect(window.status).to_have_text(told)
    assert window.status.bounding_box() == box, "it does not move"
    expect(window.page.locator(".statusbar-item", has_text="Tracing")).to_have_count(0)
    window.picture("slow-trace")
    (window.folder / "go_on").touch()
    window.expect_status("MASE: ready")
    window.expect_line("y: f32[B, 4] = self.canary_of_the_source(x)")

    window.command("MASE: Collect a Report")
    notice = window.notice("This is the whole content of the report.")
    window.expect_line("# Report of MASE")
    window.picture("report")
    notice.get_by_role("button", name="Copy Its Path").click()
    copied = "navigator.clipboard.readText()"
    wait_until(lambda: window.page.evaluate(copied).endswith(".zip"), "the path was copied")
    with zipfile.ZipFile(window.page.evaluate(copied)) as archive:
        texts = [archive.read(name).decode() for name in archive.namelist()]
        report = json.loads(archive.read("report.json"))
    assert not [text for text in texts if "canary" in text]
    assert report["settings"]["limits.seconds"] == 300
    assert report["settings"]["inputs"] == "1 entry"
    assert "code-server" in report["versions"]["editor"]
    lines = [json.loads(line) for line in report["log"]]
    traces = [line for line in lines if line["event"] == "trace" and line["path"].endswith("slow.py")]
    # The file that it waited for was missed; its appearance brings one more trace, whose phases are too short to tell.
    assert max(line["phases"].get("running", 0) for line in traces) >= 1
