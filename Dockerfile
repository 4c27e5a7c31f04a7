# One image for the node agent, the metrics API and KEDA's scaler; it builds for amd64 and arm64:
#   make image IMAGE=REGISTRY/gpuscale:VERSION PUSH=1
# and a small one for the node agent alone, which stays on every GPU node:
#   make image TARGET=agent IMAGE=REGISTRY/gpuscale-agent:VERSION PUSH=1
# or for the servers alone:
#   make image TARGET=server IMAGE=REGISTRY/gpuscale-server:VERSION PUSH=1
#
# They run as nobody with a read-only root file system. Only the node agent, where it ties GPUs to pods, is run as
# another user; see docs/install.md.
FROM python:3.13-slim-trixie AS source

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY locks ./locks
# Nothing is installed when an image runs, so pip stays behind.
RUN python -m pip install --require-hashes --requirement locks/build.txt && \
    python -m venv --without-pip /opt/gpuscale
COPY pyproject.toml README.md LICENSE ./
COPY packages/gpuscale-agent ./packages/gpuscale-agent
COPY packages/gpuscale-server ./packages/gpuscale-server
COPY tools/wheel_hook.py tools/wheel_part.py ./tools/
COPY src ./src
COPY charts ./charts

# All that is installed is named with its hash in a lock; byte code is made now, as nothing can be written when it runs.
FROM source AS build-agent

RUN python -m pip --python /opt/gpuscale/bin/python install --compile --require-hashes --requirement locks/agent.txt && \
    python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels ./packages/gpuscale-agent && \
    python -m pip --python /opt/gpuscale/bin/python install --compile --no-deps /wheels/*.whl

FROM source AS build-server

RUN python -m pip --python /opt/gpuscale/bin/python install --compile --require-hashes --requirement locks/server.txt && \
    python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels ./packages/gpuscale-server && \
    python -m pip --python /opt/gpuscale/bin/python install --compile --no-deps /wheels/*.whl

FROM source AS build

RUN python -m pip --python /opt/gpuscale/bin/python install --compile --require-hashes --requirement locks/all.txt && \
    python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . && \
    python -m pip --python /opt/gpuscale/bin/python install --compile --no-deps /wheels/*.whl

FROM python:3.13-slim-trixie AS runtime

LABEL org.opencontainers.image.title="gpuscale" \
      org.opencontainers.image.description="Scale GPU workloads on Kubernetes by what their GPUs really do." \
      org.opencontainers.image.licenses="Apache-2.0"
# The base image leaves Python's own library without byte code; each start would compile it anew.
RUN python -m compileall -q -x '/(ensurepip|idlelib|site-packages|turtledemo)/' /usr/local/lib/python3.13
ENV PATH=/opt/gpuscale/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["gpuscale"]
CMD ["--help"]

FROM runtime AS agent

COPY --from=build-agent /opt/gpuscale /opt/gpuscale
EXPOSE 9400

FROM runtime AS server

COPY --from=build-server /opt/gpuscale /opt/gpuscale
EXPOSE 6443 6000

FROM runtime

COPY --from=build /opt/gpuscale /opt/gpuscale
# 9400 node agent, 6443 metrics API, 6000 KEDA's scaler
EXPOSE 9400 6443 6000
