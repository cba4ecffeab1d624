package dns

import "container/list"

// lru is a map with a bound: what was used longest ago goes first. Whoever
// holds it locks it.
type lru[K comparable, V any] struct {
	bound int
	order list.List // of *pair[K, V], the last used in front
	items map[K]*list.Element
}

type pair[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](bound int) lru[K, V] {
	return lru[K, V]{bound: bound, items: map[K]*list.Element{}}
}

func (l *lru[K, V]) get(k K) (v V, ok bool) {
	e, ok := l.items[k]
	if !ok {
		return v, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*pair[K, V]).value, true
}

func (l *lru[K, V]) put(k K, v V) {
	if e, ok := l.items[k]; ok {
		e.Value.(*pair[K, V]).value = v
		l.order.MoveToFront(e)
		return
	}
	if len(l.items) >= l.bound {
		oldest := l.order.Back()
		delete(l.items, oldest.Value.(*pair[K, V]).key)
		l.order.Remove(oldest)
	}
	l.items[k] = l.order.PushFront(&pair[K, V]{k, v})
}

func (l *lru[K, V]) remove(k K) {
	if e, ok := l.items[k]; ok {
		delete(l.items, k)
		l.order.Remove(e)
	}
}
