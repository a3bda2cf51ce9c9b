# `saccade serve` in a container; docs/serving.md has the command that runs it.
# The base image has a tag, not a digest: a tag of a slim image receives Debian's security updates, and a digest that nobody
# renews does not. To pin it: `docker build --build-arg BASE=python@sha256:... -t saccade .`
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS build
WORKDIR /source
COPY serve.lock ./
# every package has its version and hashes in serve.lock, pip and setuptools too; nothing else is installed
RUN python -m venv /opt/saccade \
    && /opt/saccade/bin/python -m pip install --no-cache-dir --require-hashes --no-deps -r serve.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY recipes ./recipes
COPY src ./src
RUN /opt/saccade/bin/python -m pip install --no-cache-dir --no-deps --no-build-isolation .

FROM ${BASE}
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin saccade
COPY --from=build /opt/saccade /opt/saccade
# nothing is written: no bytecode, no caches
ENV PATH=/opt/saccade/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/nonexistent
USER 10001:10001
WORKDIR /models
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health/ready', timeout=4)"]
ENTRYPOINT ["saccade", "serve", "--host", "0.0.0.0", "--port", "8080"]
CMD ["--help"]
