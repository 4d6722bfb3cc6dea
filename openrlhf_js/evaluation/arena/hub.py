"""The official data set on the Hugging Face hub, as a source of files."""

from __future__ import annotations

from pathlib import Path

from openrlhf_js.evaluation.arena.fetch import HUB, Source
from openrlhf_js.tasks.hub import quiet_hub


def hub_source(repo: str = HUB, revision: str | None = None) -> Source:
    """The files of a data set on the hub, kept in its cache.

    Args:
        repo: its id.
        revision: branch, tag or commit; None: the newest.

    Raises:
        ValueError: the hub cannot be reached, or has no such data set.
    """
    import httpx
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    def trouble(error: Exception) -> ValueError:
        first = next(iter(str(error).splitlines()), "")
        return ValueError(
            f"the data set {repo} cannot be had from the hub ({type(error).__name__}: {first:.200})"
            ". Without access to it: download it elsewhere, and give its folder with --from"
        )

    try:
        with quiet_hub():
            info = HfApi().dataset_info(repo, revision=revision, timeout=30)
    except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        raise trouble(error) from None
    paths = sorted(each.rfilename for each in info.siblings or ())

    def get(path: str) -> Path:
        try:
            with quiet_hub():
                found = hf_hub_download(repo, path, repo_type="dataset", revision=info.sha)
        except EntryNotFoundError:
            raise FileNotFoundError(f"{repo} has no {path}") from None
        except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
            raise trouble(error) from None
        return Path(found)

    def listed(start: str) -> list[str]:
        return [each for each in paths if each.startswith(start) and each.endswith(".jsonl")]

    return Source(f"{repo} at {info.sha}", get, listed)
