"""Values that went, with what takes their place. The schema lets them in, so that a template can say what to use."""

_POD = ("nodeSelector", "tolerations", "affinity")
_IMAGE = ("repository", "tag", "digest", "pullPolicy")

MOVED = {
    **{f"{group}.{name}": f"use {group}.pod.{name}" for group in ("redis", "mcp", "recalibration") for name in _POD},
    **{
        f"{group}.image.{name}": f"use {group}.image, such as registry.example.org/{image}:TAG or @DIGEST"
        for group, image in (("redis", "redis"), ("mcp", "taugate/mcp"), ("recalibration", "taugate/calibration"))
        for name in _IMAGE
    },
    **{
        f"{entry}.{name}": f"use {entry}=SECRET, or {entry}=SECRET/ENTRY"
        for entry in (
            "keys.variable",
            "redis.passwordSecret",
            "engine.tokenSecret",
            "encoderEndpoint.keySecret",
            "rerankEndpoint.keySecret",
            "recalibration.signingKey",
            "recalibration.signingPassphrase",
            "mcp.keySecret",
            "metrics.serviceMonitor.key",
            "tests.key",
        )
        for name in ("existingSecret", "key")
    },
    "keys.file": "use keys.existingSecret=SECRET/ENTRY",
    "redis.key": "use redis.existingSecret=SECRET/ENTRY",
    **{
        f"{group}.objectStorage.{name}": use
        for group, env in (("releases", "env"), ("recalibration", "recalibration.env"))
        for name, use in (
            ("existingSecret", f"use {group}.objectStorage=SECRET"),
            ("endpoint", f"use {env}.AWS_ENDPOINT_URL"),
            ("region", f"use {env}.AWS_REGION"),
        )
    },
    "redis.password": "use redis.passwordSecret",
    "mcp.key": "use mcp.keySecret",
    **{
        f"recalibration.workVolume.{name}": f"use releases.volume.{name}"
        for name in ("existingClaim", "storageClass", "size")
    },
    "releases.volume.enabled": "releases are in a volume unless releases.url is set",
    "releases.volume.oneNode": "use releases.volume.accessMode=ReadWriteOnce, which keeps all pods on one node",
    "releases.volume.keep": "use releases.volume.annotations with helm.sh/resource-policy, null to delete the claim",
    "trustedKeys.pem": "use trustedKeys.existingSecret, a Secret with entries *.pem",
    "trustedKeys.existingConfigMap": "use trustedKeys.existingSecret, a Secret with entries *.pem",
    "serviceAccount.create": "the chart creates one unless serviceAccount.name is set",
    "recalibration.serviceAccount.create": "the chart creates one unless recalibration.serviceAccount.name is set",
    "listen.port": "it is 8000; the port of the Service is service.port",
    "mcp.port": "it is 80",
    "ingress.enabled": "use ingress.hosts; without hosts there is no Ingress",
    "metrics.serviceMonitor.labels": "use metrics.labels",
    "metrics.prometheusRule.labels": "use metrics.labels",
    "recalibration.data.path": "use recalibration.data.existingClaim=CLAIM/FOLDER",
    "priorityClassName": "use podSpec.priorityClassName",
    "runtimeClassName": "use podSpec.runtimeClassName",
    "topologySpread.hostname": "use topologySpread, for nodes and zones; or podSpec.topologySpreadConstraints",
    "topologySpread.zone": "use topologySpread, for nodes and zones; or podSpec.topologySpreadConstraints",
    "podDisruptionBudget.enabled": "use podDisruptionBudget.maxUnavailable=null for none",
    "rollout.maxSurge": "it is 1",
    "autoscaling.minReplicas": "use replicas",
    "autoscaling.metric": "use autoscaling.targetQueueDepth, which replaces the CPU as its metric",
    "networkPolicy.redisPort": "use the port in redis.url, or networkPolicy.extraEgress",
    "networkPolicy.enginePort": "use the port in engine.url",
    "networkPolicy.objectStoragePort": "use the port in env.AWS_ENDPOINT_URL",
    "releases.copyPath": "copies are below /cache",
    "queryLog.path": "the file is /queries/queries.jsonl",
    "metrics.serviceMonitor.interval": "it is 15s",
    "tests.query": "any question will do",
    "recalibration.cronJob.timeZone": "use recalibration.cronJob.spec.timeZone",
    "recalibration.cronJob.suspend": "use recalibration.cronJob.spec.suspend",
    "recalibration.cronJob.startingDeadlineSeconds": "use recalibration.cronJob.spec.startingDeadlineSeconds",
    "recalibration.cronJob.historyLimit": (
        "use recalibration.cronJob.spec.successfulJobsHistoryLimit and failedJobsHistoryLimit"
    ),
    "recalibration.job.ttlSecondsAfterFinished": "it is a week",
    "recalibration.cache.size": "use recalibration.tmpSize",
}
