# The collector with its page: docker-compose.yml runs it beside Prometheus and Alertmanager.
FROM python:3.11.13-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md constraints.txt ./
COPY gradwatch gradwatch
COPY hooks/gradwatch_hooks hooks/gradwatch_hooks
COPY dashboards/gradwatch_dashboards dashboards/gradwatch_dashboards
COPY migrations/gradwatch_migrations migrations/gradwatch_migrations
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && python -m venv /opt/gradwatch \
    && /opt/gradwatch/bin/pip install --no-cache-dir --constraint constraints.txt "$(echo /wheels/gradwatch-*.whl)[server]"

FROM python:3.11.13-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /data --no-create-home gradwatch \
    && install --directory --owner=gradwatch --group=gradwatch /data
COPY --from=build /opt/gradwatch /opt/gradwatch
ENV PATH=/opt/gradwatch/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER gradwatch
WORKDIR /data
VOLUME /data
EXPOSE 8420
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8420/healthz', timeout=4)"]
ENTRYPOINT ["gradwatch"]
# Binding anywhere but to 127.0.0.1 is refused without GRADWATCH_API_KEY.
CMD ["up", "--host", "0.0.0.0", "--port", "8420", "--data", "/data"]
