"""Everything that the OpenAPI document allows or forbids, tried by schemathesis on a running server."""

from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from regard.serve.models import ModelRegistry
from regard.serve.server import make_app

schema = schemathesis.openapi.from_dict(make_app(ModelRegistry(home=Path("nowhere"))).openapi())
# Its own strategies draw by chance in a way that Hypothesis does not like.
pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisDeprecationWarning")


@schema.parametrize()
@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_answers_are_those_that_the_document_promises(case, url):
    # What a document cannot say is refused too: languages that no model has, layers beyond the last.
    case.call_and_validate(base_url=url, excluded_checks=[positive_data_acceptance], timeout=30)
