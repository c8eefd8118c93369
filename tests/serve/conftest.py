"""Models and a server that many tests share."""

import httpx
import pytest

from tests.serve.server import make_folder, new_shelf, running


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """An empty place for bundled models."""
    return tmp_path_factory.mktemp("no-models")


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """Saves a Transformer and a recurrent model."""
    folder = tmp_path_factory.mktemp("models")
    return [make_folder(folder, "tiny"), make_folder(folder, "tiny-back", "recurrent", ("en", "zh"))]


@pytest.fixture(scope="session")
def shelf(folders, home):
    return new_shelf(folders, home)


@pytest.fixture(scope="session")
def url(shelf):
    """A running server."""
    with running(shelf) as found:
        yield found


@pytest.fixture
def client(url):
    with httpx.Client(base_url=url, timeout=30) as found:
        yield found


@pytest.fixture(scope="session")
def translator(shelf):
    return shelf.open("tiny")
