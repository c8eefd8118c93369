"""Models and a server that many tests share."""

import httpx
import pytest

from tests.serve.server import make_folder, make_registry, running


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder without bundled models."""
    return tmp_path_factory.mktemp("no-models")


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Save a Transformer and a recurrent model."""
    folder = tmp_path_factory.mktemp("models")
    return [make_folder(folder, "tiny"), make_folder(folder, "tiny-back", "recurrent", ("en", "zh"))]


@pytest.fixture(scope="session")
def models(folders, home):
    return make_registry(folders, home)


@pytest.fixture(scope="session")
def url(models):
    """A running server."""
    with running(models) as address:
        yield address


@pytest.fixture
def client(url):
    with httpx.Client(base_url=url, timeout=30) as client:
        yield client


@pytest.fixture(scope="session")
def translator(models):
    return models.open("tiny")
