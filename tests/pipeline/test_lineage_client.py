"""Events of a job, as OpenLineage's own client would have written them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from relay.pipeline.jobs.job import JobFailed, Summary
from relay.pipeline.jobs.lineage import Datasets, Lineage, datasets, in_redis

if TYPE_CHECKING:
    from pathlib import Path

READ = """
import json
import sys
from openlineage.client import event_v2 as ol
from openlineage.client.facet_v2 import error_message_run, input_statistics_input_dataset
from openlineage.client.facet_v2 import output_statistics_output_dataset, parent_run
from openlineage.client.serde import Serde

KINDS = {
    "errorMessage": error_message_run.ErrorMessageRunFacet,
    "parent": parent_run.ParentRunFacet,
    "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
}

def facets(found):
    own = {name: {key: facet[key] for key in facet if key[0] != "_"} for name, facet in found.items()}
    return {name: KINDS[name](**own[name], producer=facet["_producer"]) for name, facet in found.items()}

for line in open(sys.argv[1]):
    event = json.loads(line)
    said = ol.RunEvent(
        eventTime=event["eventTime"],
        eventType=ol.RunState(event["eventType"]),
        producer=event["producer"],
        run=ol.Run(event["run"]["runId"], facets(event["run"]["facets"])),
        job=ol.Job(event["job"]["namespace"], event["job"]["name"]),
        inputs=[
            ol.InputDataset(each["namespace"], each["name"], inputFacets=facets(each["inputFacets"]))
            for each in event["inputs"]
        ],
        outputs=[
            ol.OutputDataset(each["namespace"], each["name"], outputFacets=facets(each["outputFacets"]))
            for each in event["outputs"]
        ],
    )
    theirs = Serde.to_dict(said)
    assert theirs == event, (theirs, event)
    print(event["eventType"], len(event["inputs"]), len(event["outputs"]), sorted(event["run"]["facets"]))
"""


def test_their_client_reads_our_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every facet that there is, and the schemas that they name."""
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", "airflow/orders.load/0190a5b2-0000-7000-8000-000000000000")
    file = tmp_path / "events.jsonl"
    lineage = Lineage.to(str(file), print)
    written = {"--rejects": "/rejects", "--cold": "s3a://timers/cold"}
    redis = Datasets(written=in_redis("redis://127.0.0.1:6379/0", ["orders"]))
    found = datasets("schedule", {"SOURCE": "/in.csv"}, written, redis)
    with lineage.of("schedule", found) as told:
        told(Summary("schedule", counts={"written": 2, "rejected": 1, "cold": 3}))
    with pytest.raises(JobFailed), lineage.of("schedule", found):
        raise JobFailed("no room")
    asked = [sys.executable, "-W", "ignore", "-c", READ, str(file)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "START 1 3 ['parent']",
        "COMPLETE 1 3 ['parent']",
        "START 1 3 ['parent']",
        "FAIL 1 3 ['errorMessage', 'parent']",
    ]
