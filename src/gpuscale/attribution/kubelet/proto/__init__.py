"""Messages of the kubelet's pod-resources API, generated from `podresources.proto` beside this file.

Made again with `python -m gpuscale.attribution.kubelet.proto.generate`, which needs grpcio-tools.
"""
