"""The catalog's errors in this project's words: who must act."""

from collections.abc import Iterator
from contextlib import contextmanager

import catalog
from lakehouse_ingest.errors import (
    LONGEST,
    LakehouseError,
    NeedsOperator,
    SettingsRefused,
    Superseded,
    TableChanged,
    TryAgain,
    fitted,
)

# The settings behind what a refusal says that we had shown.
WHO_WE_ARE = {
    "credential": "`catalog.credential` and `catalog.scope`",
    "token": "`catalog.token`",
    "rest.sigv4-enabled": "`catalog.sign_for`, `catalog.sign_region` and `s3.access_key`",
    "": "`catalog.token` or `catalog.credential`",
}
URI = "see `catalog.uri`"
FILES = "see `s3.access_key`, `s3.secret_key` and the bucket"
FILES_AWAY = "see `s3.endpoint` and `s3.session_token`"
OR_ANOTHER = ", or name another in `catalog.namespace`"
CREATE = "see `catalog.create`"
OUR_CODE = "unset it, or say the same in `catalog.properties` if you trust it"
NO_BRANCHES = 'if this catalog allows no branches, set `catalog.publish` to "direct"'


class LostRace(TryAgain):
    """Reconciled where that can be done; elsewhere the next start looks."""


class EpochTaken(LostRace):
    """By another start, before this one had asked for it."""


@contextmanager
def explained() -> Iterator[None]:
    try:
        yield
    except (LakehouseError, catalog.FileMissing):
        raise
    except catalog.BranchGone as gone:
        raise Superseded(f"a newer start of this pipeline has taken over ({gone})") from gone
    except catalog.Conflict as conflict:
        raise LostRace(str(conflict)) from conflict
    except catalog.Denied as denied:
        raise _not_let_in(denied) from denied
    except catalog.FilesUnreachable as away:
        raise TryAgain(with_advice(away, FILES_AWAY)) from away
    except (catalog.Unreachable, catalog.OutcomeUnknown, catalog.FilesUnfit) as passing:
        # Of files that fit no more: the next start holds the table against the settings, and says which to change.
        raise TryAgain(str(passing)) from passing
    except catalog.TableMissing as missing:
        raise TableChanged(
            f"{missing}: it was dropped while the pipeline ran: restore it; `lakehouse-ingest recover` says what can be"
            " done"
        ) from missing
    except catalog.BranchesRefused as refusal:
        raise SettingsRefused(with_advice(refusal, NO_BRANCHES)) from refusal
    except catalog.CatalogError as refusal:
        of_code = isinstance(refusal, catalog.CodeRefused)
        raise NeedsOperator(with_advice(refusal, OUR_CODE) if of_code else str(refusal)) from refusal


@contextmanager
def makeable() -> Iterator[None]:
    """Of a namespace that the catalog will not make for us: another may be named, or a person may make it."""
    try:
        yield
    except catalog.NamespaceRefused as refusal:
        raise SettingsRefused(fitted(f"{refusal}{OR_ANOTHER}")) from refusal


def unmade(what: str) -> str:
    """What is said of one that the catalog is known not to have, where nothing may be made."""
    return fitted(f"there is no {what}, and it may not be made: make it, or allow it; {CREATE}")


def with_advice(failure: catalog.CatalogError, advice: str) -> str:
    return f"{str(failure)[: LONGEST - len(advice) - len('; ')]}; {advice}"


def superseded(pipeline: str, epoch: int) -> Superseded:
    return Superseded(
        f"a newer start (epoch {epoch}) of pipeline {pipeline} has taken over; this one ends without writing"
    )


def _not_let_in(denied: catalog.Denied) -> LakehouseError:
    if isinstance(denied, catalog.FilesDenied):
        return SettingsRefused(with_advice(denied, FILES))
    # Whoever gives us a new token each time that we ask may be confused for a while: a key that is turned, a clock
    # that goes wrong. A token that a person has given us stays refused.
    passing = isinstance(denied, catalog.NotLetIn) and denied.before and denied.known_by == "credential"
    return (TryAgain if passing else SettingsRefused)(with_advice(denied, f"see {WHO_WE_ARE[denied.known_by]}"))
