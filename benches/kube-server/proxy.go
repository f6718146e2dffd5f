package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The configuration of a client. The content type is kube-proxy's default; like all of client-go it asks for gzip.
func client(kubeconfig, name string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.UserAgent = name
	return config, nil
}

// Does at the API server what kube-proxy does at its start (cmd/kube-proxy/app/server.go): the same informers with the same
// selectors. The event that kube-proxy writes is missing. With KUBE_FEATURE_WatchListClient=false in the environment the
// informers list, as those of kube-proxy before 1.35; otherwise they stream.
func proxy(ctx context.Context, kubeconfig string) error {
	config, err := client(kubeconfig, "kube-proxy/v1.36.4 (linux/amd64)")
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	const resync = 15 * time.Minute
	factory := func(fieldSelector, labelSelector string) informers.SharedInformerFactory {
		return informers.NewSharedInformerFactoryWithOptions(clients, resync,
			informers.WithTweakListOptions(func(options *metav1.ListOptions) {
				options.FieldSelector, options.LabelSelector = fieldSelector, labelSelector
			}))
	}
	nodes := factory(fields.OneTermEqualSelector("metadata.name", "node-0").String(), "")
	nodes.Core().V1().Nodes().Informer()
	services := factory("spec.clusterIP!="+corev1.ClusterIPNone, "!service.kubernetes.io/service-proxy-name")
	services.Core().V1().Services().Informer()
	slices := factory("", "!service.kubernetes.io/headless")
	slices.Discovery().V1().EndpointSlices().Informer()
	others := factory("", "")
	others.Networking().V1().ServiceCIDRs().Informer()
	for _, factory := range []informers.SharedInformerFactory{nodes, services, slices, others} {
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
	}
	fmt.Println("synced", len(slices.Discovery().V1().EndpointSlices().Informer().GetStore().ListKeys()), "endpoint slices")
	<-ctx.Done()
	return nil
}
