"""A gate before a REST catalog that allows no ref but main, as some do: a commit that touches another is refused.

with MainOnly(rest_uri) as gate:
    connect(Connection(gate.uri))
    gate.refused              # the refs that were asked for
"""

import json
import re
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.services.faulty import Faulty, text_of
from tests.services.fronts import Answer, Request

COMMITS = re.compile(r"/tables/[^/]+$|/transactions/commit$")


@dataclass
class MainOnly(Faulty):
    """It may do harm by plan besides."""

    refused: list[str] = field(default_factory=list)

    def answer(self, request: Request) -> Answer | None:
        asked = _refs(request) - {"main"}
        if not asked:
            return super().answer(request)
        self.refused += asked
        said = {"message": f"Unsupported update: {min(asked)} is not main", "type": "BadRequestException", "code": 400}
        return Answer(HTTPStatus.BAD_REQUEST, json.dumps({"error": said}).encode())


def _refs(request: Request) -> set[str]:
    if request.method != "POST" or not COMMITS.search(request.path):
        return set()
    body = json.loads(text_of(request.body))
    changes = body.get("table-changes", [body])
    return {update["ref-name"] for change in changes for update in change["updates"] if "ref-name" in update}
