# Relay's image. Any base with Python 3.11 or newer does: --build-arg BASE=…
#   docker build --tag relay:0.1.0 .
# Without `# syntax=` and here-documents on purpose: buildah and plain BuildKit build it, with no frontend to fetch.
ARG BASE=python:3.12-slim

# ------------------------------------------------------------------- wheels: all that is installed, by its pins
FROM ${BASE} AS wheels
WORKDIR /source
COPY pyproject.toml constraints.txt LICENSE README.md ./
COPY relay relay
COPY lua lua
COPY deploy/spark deploy/spark
RUN python3 -m pip wheel --no-cache-dir --disable-pip-version-check \
      --constraint constraints.txt --wheel-dir /wheels '.[daemon]'

# ------------------------------------------------------------------- install: from those wheels, with no network
FROM ${BASE} AS install
COPY --from=wheels /wheels /wheels
# The bytecode is made here: at run time the file system is read-only.
RUN python3 -m venv --without-pip /opt/relay \
 && python3 -m pip --python /opt/relay/bin/python install --no-index --no-cache-dir --disable-pip-version-check \
      --find-links /wheels --compile 'relay-timers[daemon]' \
 && find /opt/relay -type d \( -name tests -o -name test \) -prune -exec rm -rf {} + \
 && /opt/relay/bin/relay --version

# ------------------------------------------------------------------- the same for the pipeline: Spark and Java
# Its own wheels come last of all stages that fetch: Spark is 450 MB, and the image of the daemon needs none of it.
FROM wheels AS pipeline-wheels
RUN python3 -m pip wheel --no-cache-dir --disable-pip-version-check \
      --constraint constraints.txt --wheel-dir /wheels '.[pipeline]'

FROM ${BASE} AS pipeline-install
COPY --from=pipeline-wheels /wheels /wheels
RUN python3 -m venv --without-pip /opt/relay \
 && python3 -m pip --python /opt/relay/bin/python install --no-index --no-cache-dir --disable-pip-version-check \
      --find-links /wheels --compile 'relay-timers[pipeline]' \
 && find /opt/relay -type d \( -name tests -o -name test \) -prune -exec rm -rf {} + \
 && /opt/relay/bin/python -c 'from pathlib import Path; from relay.pipeline.spark.java import from_pip; from_pip(Path("/opt/java"))' \
 && /opt/java/bin/java -version \
 && HOME=/tmp JAVA_HOME=/opt/java SPARK_LOCAL_IP=127.0.0.1 /opt/relay/bin/relay pipeline jars --s3

# ------------------------------------------------------------------- pipeline: the image of `relay pipeline`
#   docker build --target pipeline --tag relay-pipeline:0.1.0 .
FROM ${BASE} AS pipeline
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="relay-pipeline" \
      org.opencontainers.image.description="Relay's timers in bulk: Spark, Java and the jobs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=pipeline-install /opt/relay /opt/relay
COPY --from=pipeline-install /opt/java /opt/java
COPY deploy/spark/entrypoint.sh /opt/entrypoint.sh
# Java asks the system for the user's name, and Hadoop fails where there is none.
RUN ln -s /opt/relay/lib/python3.*/site-packages/pyspark /opt/spark \
 && echo 'relay:x:65532:65532:relay:/tmp:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'relay:x:65532:' >> /etc/group
ENV PATH=/opt/relay/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    JAVA_HOME=/opt/java \
    SPARK_HOME=/opt/spark \
    PYSPARK_PYTHON=/opt/relay/bin/python \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
# What follows `relay`: the chart's CronJobs say `pipeline sweep …`. Or `driver` and `executor`, from Spark on Kubernetes.
# spark-submit is /opt/spark/bin/spark-submit, and its main file /opt/relay/bin/relay-pipeline.py.
ENTRYPOINT ["/opt/entrypoint.sh"]
CMD ["pipeline", "--help"]

# ------------------------------------------------------------------- the same for movers of the outbox, with psycopg and libpq
# An image of its own, since psycopg is under the LGPL: whoever passes this one on passes that on, too.
FROM wheels AS outbox-wheels
RUN python3 -m pip wheel --no-cache-dir --disable-pip-version-check \
      --constraint constraints.txt --wheel-dir /wheels '.[daemon,outbox]' 'psycopg[binary]'

FROM ${BASE} AS outbox-install
COPY --from=outbox-wheels /wheels /wheels
RUN python3 -m venv --without-pip /opt/relay \
 && python3 -m pip --python /opt/relay/bin/python install --no-index --no-cache-dir --disable-pip-version-check \
      --find-links /wheels --compile 'relay-timers[daemon,outbox]' 'psycopg[binary]' \
 && find /opt/relay -type d \( -name tests -o -name test \) -prune -exec rm -rf {} + \
 && /opt/relay/bin/relay outbox --help

# ------------------------------------------------------------------- outbox: the image of `relay outbox`
#   docker build --target outbox --tag relay-outbox:0.1.0 .
FROM ${BASE} AS outbox
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="relay-outbox" \
      org.opencontainers.image.description="Hands timers of an application's own database to a relay" \
      org.opencontainers.image.licenses="Apache-2.0 AND LGPL-3.0-only" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=outbox-install /opt/relay /opt/relay
ENV PATH=/opt/relay/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["/opt/relay/bin/relay"]
CMD ["outbox", "--help"]
STOPSIGNAL SIGTERM

# ------------------------------------------------------------------- relay: the image
FROM ${BASE} AS relay
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
LABEL org.opencontainers.image.title="relay" \
      org.opencontainers.image.description="Durable, precise timers on Redis, delivered over gRPC" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=install /opt/relay /opt/relay
ENV PATH=/opt/relay/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# By number, so that runAsNonRoot can be checked. No such user need exist.
USER 65532:65532
EXPOSE 7451 7452
# As PID 1, without a shell: the daemon handles SIGTERM itself, and starts no children.
ENTRYPOINT ["/opt/relay/bin/relay"]
CMD ["serve"]
STOPSIGNAL SIGTERM
# For Docker; Kubernetes has probes of its own, over HTTP.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/opt/relay/bin/relay", "healthcheck"]
