// What benches/bench-kube runs: an API server made of Kubernetes' own library, and clients of it.
//
//	kube-server server ETCD FOLDER    serves until it is stopped; writes a kubeconfig to FOLDER
//	kube-server load KUBECONFIG N     creates N services, each with an endpoint slice
//	kube-server proxy KUBECONFIG      reads what kube-proxy reads at its start, prints "synced", and goes on watching
//
// It is built outside a module, where Go has old defaults:
//
//go:debug default=go1.26
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kube-server:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 3 && args[0] == "server":
		return serve(ctx, args[1], args[2])
	case len(args) == 3 && args[0] == "load":
		number, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return load(ctx, args[1], number)
	case len(args) == 2 && args[0] == "proxy":
		return proxy(ctx, args[1])
	}
	return fmt.Errorf("usage: kube-server server ETCD FOLDER | load KUBECONFIG N | proxy KUBECONFIG")
}
