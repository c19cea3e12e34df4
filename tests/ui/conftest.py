"""The app over a race, for tests that need no other race and no other terminal."""

import pytest
from support.ui import Demo, racing_demo

from .pilot import app_of


@pytest.fixture
def demo() -> Demo:
    return racing_demo()


@pytest.fixture
def app(demo):
    return app_of(demo)


@pytest.fixture
async def pilot(app, request):
    async with app.run_test(size=getattr(request, "param", (120, 36))) as pilot:
        yield pilot
