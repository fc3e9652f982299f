# syntax=docker/dockerfile:1
# Three stages: the libraries, the model with its int8 weights and compiled code, and what runs. No network is needed
# at run time, and neither compiler nor pip's cache is in the result.
#
#     docker build --build-arg MODEL_ID=Qwen/Qwen2.5-0.5B-Instruct --tag leveret .

ARG PYTHON_IMAGE=docker.io/library/python:3.12-slim

# -- deps: the locked libraries, rebuilt only when the lock changes -------------------------------------------------
FROM ${PYTHON_IMAGE} AS deps
ARG TORCH=torch==2.13.0+cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
COPY deploy/lock/runtime.lock deploy/lock/otel.lock /build/
# An extra that has a lock: `otel`, for spans.
ARG EXTRA=
# torch stands outside the lock: a plain `torch` brings several GB of CUDA. Its own needs are in the lock.
# hadolint ignore=DL3013
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --no-deps --require-hashes --requirement /build/runtime.lock \
        ${EXTRA:+--requirement "/build/${EXTRA}.lock"} \
    && pip install --no-deps --extra-index-url "${TORCH_INDEX}" "${TORCH}"

# -- model: weights, int8 where the family has them, and machine code for the building machine's processor ----------
FROM deps AS model
ARG MODEL_ID=Qwen/Qwen2.5-0.5B-Instruct
ARG MODEL_REVISION=
ENV LEVERET_MODELS_DIR=/models NUMBA_CACHE_DIR=/opt/leveret/jit PYTHONDONTWRITEBYTECODE=1
WORKDIR /build
# Fetching needs these files alone, so a change of the daemon does not download the model again.
COPY daemon/__init__.py daemon/errors.py daemon/fetching.py daemon/gguf_model.py daemon/hub.py daemon/models.py \
     daemon/smollm2.py daemon/
COPY deploy/image/bake.py ./
RUN --mount=type=cache,target=/root/.cache/pip python bake.py fetch "${MODEL_ID}" "${MODEL_REVISION}"
COPY daemon/engine daemon/engine
RUN python bake.py quantise "${MODEL_ID}"
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY daemon daemon
# Installed into a folder of its own, so that the layer of the libraries stays as it is.
RUN pip install --no-deps --no-build-isolation --no-cache-dir --target /opt/leveret . \
    && PYTHONPATH=/opt/leveret python -P bake.py compile "${MODEL_ID}"

# -- runtime --------------------------------------------------------------------------------------------------------
FROM ${PYTHON_IMAGE} AS runtime
ARG MODEL_ID=Qwen/Qwen2.5-0.5B-Instruct
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="leveret" \
      org.opencontainers.image.description="A small language model behind a RabbitMQ queue, on a plain CPU" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      leveret.model="${MODEL_ID}"
RUN groupadd --gid 10001 app \
    && useradd --uid 10001 --gid app --home-dir /nonexistent --no-create-home --shell /usr/sbin/nologin app
COPY --from=deps /opt/venv /opt/venv
COPY --from=model /models /models
COPY --from=model /opt/leveret /opt/leveret
ENV PATH=/opt/leveret/bin:/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/leveret \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/opt/leveret/jit \
    HF_HUB_OFFLINE=1 \
    TRANSFORMERS_OFFLINE=1 \
    LEVERET_MODELS_DIR=/models \
    LEVERET_MODEL=${MODEL_ID} \
    LEVERET_HEALTH_HOST=0.0.0.0
USER 10001:10001
WORKDIR /
EXPOSE 8080
STOPSIGNAL SIGTERM
# Alive, not ready: a container whose broker is away is not broken, and a restart would not help it.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python3", "-I", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:' + (os.environ.get('LEVERET_HEALTH_PORT') or '8080') + '/livez', timeout=4)"]
ENTRYPOINT ["leveret"]
CMD ["run"]
