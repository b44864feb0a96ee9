#!/bin/sh
# The entry point of the pipeline's image. Spark on Kubernetes starts its pods with the argument `driver` or
# `executor`, and gives an executor the rest in environment variables. Anything else follows `relay`.
set -eu
case "${1-}" in
driver)
  shift
  exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
    --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" "$@"
  ;;
executor)
  shift
  n=0
  while option=$(printenv "SPARK_JAVA_OPT_$n"); do # options of Java: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 …
    set -- "$@" "$option"
    n=$((n + 1))
  done
  classes="${SPARK_CLASSPATH-}:$SPARK_HOME/jars/*"
  exec "$JAVA_HOME/bin/java" "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}${HADOOP_CONF_DIR:+$HADOOP_CONF_DIR:}$classes" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
*)
  exec relay "$@"
  ;;
esac
