# `saccade serve` in a container; docs/serving.md has the command that runs it.
FROM python:3.11-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml setup.py constraints.txt README.md LICENSE ./
COPY recipes ./recipes
COPY src ./src
RUN python -m venv /opt/saccade \
    && /opt/saccade/bin/python -m pip install --no-cache-dir -c constraints.txt ".[serve]"

FROM python:3.11-slim-bookworm
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
