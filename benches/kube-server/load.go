package main

import (
	"context"
	"fmt"
	"math/rand"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
)

const (
	nodes      = 20
	namespaces = 40
	perSlice   = 4
	writers    = 16

	nodeObject = `{"apiVersion": "v1", "kind": "Node",
		"metadata": {"name": "node-%[1]d", "labels": {"kubernetes.io/hostname": "node-%[1]d", "topology.kubernetes.io/zone": "a"}},
		"spec": {"podCIDR": "10.244.%[1]d.0/24", "podCIDRs": ["10.244.%[1]d.0/24"]},
		"status": {"addresses": [{"type": "InternalIP", "address": "10.1.0.%[2]d"}]}}`
	serviceObject = `{"apiVersion": "v1", "kind": "Service",
		"metadata": {"name": "service-%[1]d", "labels": {"app": "app-%[1]d", "team": "team-%[2]d"}},
		"spec": {"clusterIP": "10.96.%[3]d.%[4]d", "clusterIPs": ["10.96.%[3]d.%[4]d"], "type": "ClusterIP",
			"ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None",
			"selector": {"app": "app-%[1]d"}, "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}]}}`
	sliceObject = `{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
		"metadata": {"name": "service-%[1]d-%05[3]x", "generateName": "service-%[1]d-",
			"annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "2026-03-01T10:12:12Z"},
			"labels": {"app": "app-%[1]d", "team": "team-%[2]d", "kubernetes.io/service-name": "service-%[1]d",
				"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
			"ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "service-%[1]d", "uid": "%[4]s",
				"controller": true, "blockOwnerDeletion": true}]},
		"addressType": "IPv4", "ports": [{"name": "http", "protocol": "TCP", "port": 8080}], "endpoints": [%[5]s]}`
	endpointObject = `{"addresses": ["10.244.%[3]d.%[4]d"], "nodeName": "node-%[3]d", "zone": "a",
		"conditions": {"ready": true, "serving": true, "terminating": false},
		"targetRef": {"kind": "Pod", "namespace": "team-%[2]d", "name": "app-%[1]d-%010[5]x-%05[6]x", "uid": "%[7]s"}}`
)

// Creates a cluster's nodes, services and endpoint slices. The server adds uid, creation time and managed fields.
func load(ctx context.Context, kubeconfig string, number int) error {
	config, err := client(kubeconfig, "kube-controller-manager/v1.36.4")
	if err != nil {
		return err
	}
	config.QPS = -1
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	create := func(object, path string) error {
		request := clients.Discovery().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json")
		return request.Body([]byte(object)).Do(ctx).Error()
	}
	for i := range nodes {
		if err := create(fmt.Sprintf(nodeObject, i, i+1), "/api/v1/nodes"); err != nil {
			return err
		}
	}
	var group sync.WaitGroup
	failures := make(chan error, writers)
	for writer := range writers {
		group.Go(func() {
			random := rand.New(rand.NewSource(int64(writer)))
			for i := writer; i < number; i += writers {
				team := i % namespaces
				err := create(fmt.Sprintf(serviceObject, i, team, i>>8, i&255), fmt.Sprintf("/api/v1/namespaces/team-%d/services", team))
				if err == nil {
					err = create(slice(i, team, random), fmt.Sprintf("/apis/discovery.k8s.io/v1/namespaces/team-%d/endpointslices", team))
				}
				if err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	return <-failures
}

func slice(i, team int, random *rand.Rand) string {
	endpoints := make([]string, perSlice)
	for n := range endpoints {
		endpoints[n] = fmt.Sprintf(endpointObject, i, team, random.Intn(nodes), random.Intn(256),
			random.Int63n(1<<40), random.Intn(1<<20), uuid.NewUUID())
	}
	return fmt.Sprintf(sliceObject, i, team, random.Intn(1<<20), uuid.NewUUID(), strings.Join(endpoints, ", "))
}
