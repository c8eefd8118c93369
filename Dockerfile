# The page and the HTTP API with the bundled models, on a CPU: docs/guide/serve-api.md says how to run it.
FROM node:22-slim AS page
WORKDIR /regard/web
COPY web/package.json web/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY web ./
RUN npm run build

FROM python:3.13-slim AS wheel
RUN apt-get update && apt-get install --yes --no-install-recommends g++
WORKDIR /regard
COPY pyproject.toml README.md LICENSE ./
COPY tools/hatch_build.py tools/
COPY src src
COPY --from=page /regard/src/regard/serve/page src/regard/serve/page
# What is installed lies in one folder, which the last stage copies: it holds neither pip nor a compiler.
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
  && python -m venv --without-pip /opt/regard \
  && pip --python /opt/regard/bin/python install --no-cache-dir "$(echo /wheels/regard-*.whl)[serve]"

FROM python:3.13-slim
COPY --from=wheel /opt/regard /opt/regard
ENV PATH=/opt/regard/bin:$PATH
# Nothing is written, so the root may be read-only and the user needs neither a name nor a home.
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["regard", "serve", "--host", "0.0.0.0", "--port", "8000"]
