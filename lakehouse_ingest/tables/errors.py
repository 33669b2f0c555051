"""Turn the catalog's errors into this project's, which say who must act."""

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

# The settings to look at, by the kind of credentials that the catalog refused.
WHO_WE_ARE = {
    "credential": "`catalog.credential` and `catalog.scope`",
    "token": "`catalog.token`",
    "rest.sigv4-enabled": "`catalog.sign_for`, `catalog.sign_region` and `s3.access_key`",
    "": "`catalog.token` or `catalog.credential`",
}
URI = "see `catalog.uri`"
FILES = "see `s3.access_key`, `s3.secret_key` and the bucket"
OR_ANOTHER = ", or name another in `catalog.namespace`"
CREATE = "see `catalog.create`"
OUR_CODE = "unset it, or set the same in `catalog.properties` if you trust it"
NO_BRANCHES = 'if this catalog allows no branches, set `catalog.publish` to "direct"'


class LostRace(TryAgain):
    """Another commit came first. It is reconciled where that is possible; elsewhere the next start reads the tables."""


class EpochTaken(LostRace):
    """Another start took the epoch before this one asked for it."""


class StoreAway(TryAgain):
    """The store of the tables' files does not answer, whichever table is asked for."""


FILES_AWAY: dict[type[catalog.CatalogError], tuple[type[TryAgain], str]] = {
    catalog.FilesUnreachable: (StoreAway, "see `s3.endpoint` and `s3.session_token`"),
    catalog.FilesUnwritable: (TryAgain, "make room for the tables' files, or let us write there"),
}


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
    except (*FILES_AWAY,) as away:
        kind, advice = FILES_AWAY[type(away)]
        raise kind(with_advice(away, advice)) from away
    except (catalog.Unreachable, catalog.OutcomeUnknown, catalog.FilesUnfit) as passing:
        # FilesUnfit: the next start compares the table with the settings, and says which setting to change.
        raise TryAgain(str(passing)) from passing
    except catalog.TableMissing as missing:
        raise TableChanged(
            f"{missing}: it was dropped during the run: restore it; `lakehouse-ingest recover` shows the choices"
        ) from missing
    except catalog.BranchesRefused as refusal:
        raise SettingsRefused(with_advice(refusal, NO_BRANCHES)) from refusal
    except catalog.CatalogError as refusal:
        of_code = isinstance(refusal, catalog.CodeRefused)
        raise NeedsOperator(with_advice(refusal, OUR_CODE) if of_code else str(refusal)) from refusal


@contextmanager
def makeable() -> Iterator[None]:
    """Add advice if the catalog refuses to create the namespace: a person can create it, or name another."""
    try:
        yield
    except catalog.NamespaceRefused as refusal:
        raise SettingsRefused(fitted(f"{refusal}{OR_ANOTHER}")) from refusal


def unmade(what: str) -> str:
    """The message for a missing table or namespace that we may not create."""
    return fitted(f"there is no {what}, and it may not be made: make it, or allow it; {CREATE}")


def with_advice(failure: catalog.CatalogError | str, advice: str) -> str:
    return f"{str(failure)[: LONGEST - len(advice) - len('; ')]}; {advice}"


def superseded(pipeline: str, epoch: int) -> Superseded:
    return Superseded(
        f"a newer start (epoch {epoch}) of pipeline {pipeline} has taken over; this one ends without writing"
    )


def _not_let_in(denied: catalog.Denied) -> LakehouseError:
    if isinstance(denied, catalog.FilesDenied):
        return SettingsRefused(with_advice(denied, FILES))
    # With `catalog.credential` a server gives us a new token each time, and it can fail for a while: its key is being
    # changed, or its clock is wrong. A token from the settings never changes, so it stays refused.
    passing = isinstance(denied, catalog.NotLetIn) and denied.before and denied.known_by == "credential"
    return (TryAgain if passing else SettingsRefused)(with_advice(denied, f"see {WHO_WE_ARE[denied.known_by]}"))
