"""A front before a REST catalog that leaves out some of what commits require, as a catalog with a fault might.

with LaxCatalog(rest_uri, leaves_out=lambda requirement: requirement.get("ref") == "main") as lax:
    connect(Connection(lax.uri))
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tests.services.faulty import Faulty, text_of
from tests.services.fronts import Answer, Request
from tests.services.main_only import COMMITS

Requirement = Mapping[str, object]


def of_main(requirement: Requirement) -> bool:
    return requirement.get("ref") == "main"


def of_branches(requirement: Requirement) -> bool:
    return "ref" in requirement and not of_main(requirement)


def of_type(name: str) -> Callable[[Requirement], bool]:
    return lambda requirement: requirement["type"] == name


@dataclass
class LaxCatalog(Faulty):
    """It may do harm by plan besides."""

    leaves_out: Callable[[Requirement], bool] = lambda _: False
    commits: list[str] = field(default_factory=list)  # their paths

    def answer(self, request: Request) -> Answer | None:
        if request.method == "POST" and COMMITS.search(request.path):
            self.commits.append(request.path)
            body = json.loads(text_of(request.body))
            body["requirements"] = [each for each in body["requirements"] if not self.leaves_out(each)]
            request = replace(request.without("content-encoding"), body=json.dumps(body).encode())
        return super().answer(request)
