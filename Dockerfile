# One image for the node agent, the metrics API and KEDA's scaler; it builds for amd64 and arm64:
#   make image IMAGE=REGISTRY/gpuscale:VERSION PUSH=1
#
# It runs as nobody with a read-only root file system. Only the node agent, where it ties GPUs to pods, is run as
# another user; see docs/install.md.
FROM python:3.13-slim-trixie AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
# Byte code is made now: nothing can be written when it runs.
RUN python -m venv /opt/gpuscale \
    && /opt/gpuscale/bin/python -m pip install --compile '.[nvidia,kubernetes,keda,streams,otlp]'

FROM python:3.13-slim-trixie

LABEL org.opencontainers.image.title="gpuscale" \
      org.opencontainers.image.description="Scale GPU workloads on Kubernetes by what their GPUs really do." \
      org.opencontainers.image.licenses="Apache-2.0"
# The base image leaves Python's own library without byte code; each start would compile it anew.
RUN python -m compileall -q -x '/(ensurepip|idlelib|site-packages|turtledemo)/' /usr/local/lib/python3.13
COPY --from=build /opt/gpuscale /opt/gpuscale
ENV PATH=/opt/gpuscale/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
# 9400 node agent, 6443 metrics API, 6000 KEDA's scaler
EXPOSE 9400 6443 6000
ENTRYPOINT ["gpuscale"]
CMD ["--help"]
