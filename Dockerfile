# One image for the head, the shards, the gateway and a client's daemon. No image was built from this file yet:
# it is linted (tests/deploy), and the same installation runs in continuous integration without a container.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/penrose \
    && /opt/penrose/bin/pip install --no-cache-dir --disable-pip-version-check '.[analysis,cluster,dp,otel,tor]'

FROM python:3.11-slim-bookworm
# wget: KubeRay's probes call it
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --create-home --home-dir /home/penrose --shell /usr/sbin/nologin penrose
COPY --from=build /opt/penrose /opt/penrose
ENV PATH=/opt/penrose/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    RAY_AUTH_MODE=token \
    RAY_USAGE_STATS_ENABLED=0
WORKDIR /home/penrose
COPY scripts scripts
COPY configs configs
USER 10001:10001
EXPOSE 8443
ENTRYPOINT ["penrose"]
