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
    "networkPolicy.objectStoragePort": "use the port in releases.objectStorage.endpoint",
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
