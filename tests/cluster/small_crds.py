"""Definitions of other projects' kinds, as far as gpuscale renders them.

Each has the fields that are rendered and no others, so that the API server refuses what is misspelt.
Names, types and required fields are those of Prometheus Operator 0.85, KEDA 2.21, cert-manager 1.21 and
Karpenter 1.14.
"""

import json

TEXT, WHOLE, BOOL = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
TEXTS = {"type": "object", "additionalProperties": TEXT}
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
QUANTITY = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


def fields(*required, **properties):
    wanted = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **wanted}


def several(item):
    return {"type": "array", "items": item}


def choice(*values):
    return {"type": "string", "enum": list(values)}


LABELS = fields(matchLabels=TEXTS)
REFERENCE = fields("kind", "name", kind=TEXT, name=TEXT)
REQUIREMENT = fields("key", "operator", key=TEXT, operator=TEXT, values=several(TEXT))
TAINT = fields("key", "effect", key=TEXT, value=TEXT, effect=TEXT)
SELECTOR_TERMS = several(fields(tags=TEXTS))

SERVICE_MONITOR = fields(
    "endpoints",
    "selector",
    selector=LABELS,
    namespaceSelector=fields(matchNames=several(TEXT)),
    attachMetadata=fields(node=BOOL),
    endpoints=several(
        fields(
            port=TEXT,
            honorLabels=BOOL,
            scheme=choice("http", "https"),
            bearerTokenFile=TEXT,
            tlsConfig=fields(serverName=TEXT, ca=fields(secret=fields("key", name=TEXT, key=TEXT))),
            interval={
                "type": "string",
                "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?"
                "(([0-9]+)s)?(([0-9]+)ms)?)$",
            },
            relabelings=several(fields(action=choice("labeldrop", "replace"), regex=TEXT)),
        )
    ),
)
PROMETHEUS_RULE = fields(
    groups=several(
        fields(
            "name",
            name=TEXT,
            interval=TEXT,
            rules=several(
                fields(
                    "expr",
                    record=TEXT,
                    alert=TEXT,
                    expr=QUANTITY,
                    labels=TEXTS,
                    annotations=TEXTS,
                    **{"for": TEXT},
                )
            ),
        )
    )
)
SCALED_OBJECT = fields(
    "scaleTargetRef",
    "triggers",
    scaleTargetRef=fields("name", apiVersion=TEXT, kind=TEXT, name=TEXT),
    minReplicaCount=WHOLE,
    maxReplicaCount=WHOLE,
    pollingInterval=WHOLE,
    advanced=fields(
        horizontalPodAutoscalerConfig=fields(
            behavior=fields(scaleDown=fields(stabilizationWindowSeconds=WHOLE))
        )
    ),
    triggers=several(
        fields(
            "metadata",
            "type",
            type=TEXT,
            metadata=TEXTS,
            metricType=choice("AverageValue", "Value", "Utilization"),
        )
    ),
)
CERTIFICATE = fields(
    "issuerRef",
    "secretName",
    secretName=TEXT,
    dnsNames=several(TEXT),
    usages=several(choice("digital signature", "server auth")),
    privateKey=fields(algorithm=choice("RSA", "ECDSA", "Ed25519"), size=WHOLE),
    issuerRef=fields("name", kind=TEXT, name=TEXT),
    isCA=BOOL,
    commonName=TEXT,
)
ISSUER = fields(selfSigned=fields(), ca=fields("secretName", secretName=TEXT))
NODE_POOL = fields(
    "template",
    weight=WHOLE,
    limits={"type": "object", "additionalProperties": QUANTITY},
    disruption=fields(
        "consolidateAfter",
        consolidationPolicy=choice("WhenEmpty", "WhenEmptyOrUnderutilized"),
        consolidateAfter={"type": "string", "pattern": "^(([0-9]+(s|m|h))+|Never)$"},
        budgets=several(fields("nodes", nodes=TEXT)),
    ),
    template=fields(
        "spec",
        metadata=fields(labels=TEXTS),
        spec=fields(
            "nodeClassRef",
            "requirements",
            expireAfter=TEXT,
            nodeClassRef=fields("group", "kind", "name", group=TEXT, kind=TEXT, name=TEXT),
            taints=several(TAINT),
            requirements=several(REQUIREMENT),
        ),
    ),
)
EC2_NODE_CLASS = fields(
    "amiSelectorTerms",
    "securityGroupSelectorTerms",
    "subnetSelectorTerms",
    role=TEXT,
    amiSelectorTerms=several(
        fields(alias={"type": "string", "pattern": "^(al2|al2023|bottlerocket|windows\\d{4})@.+$"})
    ),
    subnetSelectorTerms=SELECTOR_TERMS,
    securityGroupSelectorTerms=SELECTOR_TERMS,
    blockDeviceMappings=several(
        fields(
            deviceName=TEXT,
            ebs=fields(volumeSize=TEXT, volumeType=TEXT, iops=WHOLE, throughput=WHOLE),
        )
    ),
)
AKS_NODE_CLASS = fields(
    imageFamily=choice("Ubuntu", "Ubuntu2204", "Ubuntu2404", "AzureLinux"), osDiskSizeGB=WHOLE
)


def definition(group, version, kind, plural, spec, *, scope="Namespaced", **more):
    schema = {"type": "object", "properties": {"spec": spec, "status": ANY}}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{**served, **more}],
        },
    }


OPERATOR, CERTS = "monitoring.coreos.com", "cert-manager.io"
DEFINITIONS = (
    definition(OPERATOR, "v1", "ServiceMonitor", "servicemonitors", SERVICE_MONITOR),
    definition(OPERATOR, "v1", "PrometheusRule", "prometheusrules", PROMETHEUS_RULE),
    definition("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects", SCALED_OBJECT),
    definition(CERTS, "v1", "Certificate", "certificates", CERTIFICATE),
    definition(CERTS, "v1", "Issuer", "issuers", ISSUER),
    definition("karpenter.sh", "v1", "NodePool", "nodepools", NODE_POOL, scope="Cluster"),
    definition(
        "karpenter.k8s.aws",
        "v1",
        "EC2NodeClass",
        "ec2nodeclasses",
        EC2_NODE_CLASS,
        scope="Cluster",
    ),
    definition(
        "karpenter.azure.com",
        "v1beta1",
        "AKSNodeClass",
        "aksnodeclasses",
        AKS_NODE_CLASS,
        scope="Cluster",
    ),
)


def manifest():
    """Return all definitions, for kubectl."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(DEFINITIONS)})
