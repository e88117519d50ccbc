/** From columns to modules, and which of them are open. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { all, initial, shown, visible } from '../src/graph/expansion';
import { MOST_MEMBERS, Scope, buildTree } from '../src/graph/tree';
import { chain, sample } from './graph_samples';

const ids = (scope: Scope) => scope.members.map(({ id }) => id);

test('modules hold their operations, in order of execution, lists of modules too', () => {
  const { root, byId } = buildTree(sample());
  assert.deepEqual(ids(root), [':x', 'blocks', ':head']);
  assert.deepEqual(ids(byId.get('blocks') as Scope), ['blocks.0', 'blocks.1']);
  assert.deepEqual(ids(byId.get('blocks.1') as Scope), [':blocks_1_fc', ':add_1']);
});

test('a scope knows its class and which operations it holds', () => {
  const block = buildTree(sample()).byId.get('blocks.1') as Scope;
  assert.deepEqual([block.name, block.type, block.first, block.end], ['1', 'Block', 3, 5]);
});

test('a layer has its own name beside its operator, an operation none', () => {
  const { operations } = buildTree(sample());
  assert.deepEqual(operations.map(({ title, name }) => `${title} ${name}`), ['placeholder x', 'linear fc', 'add ', 'linear fc', 'add ', 'linear head']);
});

test('a module that is called twice is there twice, and both are told apart', () => {
  const graph = sample([
    { name: 'a', scope: 'norm' },
    { name: 'b', inputs: [10] },
    { name: 'c', scope: 'norm', inputs: [11] },
  ]);
  assert.deepEqual(ids(buildTree(graph).root), ['norm', ':b', 'norm#2']);
});

test('what a module does between two parts of another one ends that one', () => {
  const graph = sample([{ name: 'a', scope: 'net.one' }, { name: 'b', scope: 'net' }, { name: 'c', scope: 'net.one' }]);
  assert.deepEqual(ids(buildTree(graph).byId.get('net') as Scope), ['net.one', ':b', 'net.one#2']);
});

test('a module whose name only begins like another one is not inside of it', () => {
  const graph = sample([{ name: 'a', scope: 'net' }, { name: 'b', scope: 'net2' }]);
  assert.deepEqual(ids(buildTree(graph).root), ['net', 'net2']);
});

test('ten thousand operations in no module are in groups that one can look at', () => {
  const { root, operations } = buildTree(chain(10_000));
  assert.ok(root.members.length <= MOST_MEMBERS);
  assert.equal(operations.length, 10_000);
  const [first, second] = root.members as Scope[];
  assert.deepEqual([first?.first, first?.end, second?.first], [0, 100, 100]);
  assert.equal(operations[150]?.parent, second);
});

test('at first repeated blocks are closed, and what is around them is open', () => {
  const tree = buildTree(sample());
  assert.deepEqual([...initial(tree)], ['', 'blocks']);
});

test('at first a large module stays closed', () => {
  const rows = Array.from({ length: 100 }, (_, index) => ({ name: `n${index}`, scope: 'large' }));
  assert.deepEqual([...initial(buildTree(sample([...rows, { name: 'last' }])))], ['']);
});

test('all modules are open after all were opened, however many there are', () => {
  assert.deepEqual([...all(buildTree(sample()))], ['', 'blocks', 'blocks.0', 'blocks.1']);
  const tree = buildTree(chain(10_000));
  const boxes = [...shown(tree.root, all(tree))];
  assert.equal(boxes.filter(({ kind }) => kind === 'operation').length, 10_000);
});

test('what is in closed modules is represented by the outermost of them', () => {
  const { operations } = buildTree(sample());
  const inner = operations[1];
  assert.ok(inner !== undefined);
  assert.equal(visible(inner, new Set([''])).id, 'blocks');
  assert.equal(visible(inner, new Set(['', 'blocks'])).id, 'blocks.0');
  assert.equal(visible(inner, new Set(['', 'blocks', 'blocks.0'])).id, ':blocks_0_fc');
  assert.equal(visible(inner, new Set(['', 'blocks.0'])).id, 'blocks');
});
