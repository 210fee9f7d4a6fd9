from __future__ import annotations

import json
import subprocess
import sys

from tests.support.processes import ROOT

STATIONS = [
    ("features/courier/signatures.py", "Verifier.verify"),
    ("engine/intake.py", "Intake.begin"),
    ("stores/sqlite/ledger.py", "record"),
    ("stores/sqlite/ledger.py", "claim"),
    ("features/courier/workload.py", "Courier.handle_batch"),
    ("stores/sqlite/settling.py", "settle"),
    ("brokers/sqlite.py", "SqliteBroker.acknowledge"),
]


def test_the_walk_follows_an_event_from_the_signature_to_the_acknowledgement():
    done = subprocess.run(
        [sys.executable, "-m", "tests.walk", "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    passed = [(each["file"], each["name"]) for each in told["passed"]]
    assert [each for each in passed if each in STATIONS] == STATIONS
    assert told["functions"] == len(passed)
    assert told["files"] == len({file for file, _ in passed})
    # These run in an idle gateway too.
    assert ("engine/maintenance.py", "Maintenance.run") not in passed
    assert ("brokers/sqlite.py", "SqliteBroker.take") not in passed
