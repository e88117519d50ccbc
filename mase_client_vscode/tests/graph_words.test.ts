/** Texts, colours, search, and pages of a graph. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { scaleOf } from '../src/graph/colours';
import { GraphPage, joined, sameTrace } from '../src/graph/pages';
import { matches } from '../src/graph/search';
import { counted, resultText, sqnrText, valueText } from '../src/graph/texts';
import { buildTree } from '../src/graph/tree';
import { label, onBox } from '../src/graph/words';
import { TENSOR, sample } from './graph_samples';

test('values read as the hints have them', () => {
  assert.equal(valueText(['f32', [2, 16, 768], ['B', 'T', '768']]), 'f32[B, T, 768]');
  assert.equal(valueText(['i64', [2, 16], null]), 'i64[2, 16]');
  assert.equal(valueText(['f32', [], []]), 'f32[]');
  assert.equal(valueText({ tuple: [TENSOR, TENSOR, TENSOR] }), '(3 of f32[B, 8])');
  assert.equal(valueText({ tuple: [TENSOR, null] }), '(f32[B, 8], None)');
  assert.equal(valueText({ dict: { logits: TENSOR } }), '{logits: f32[B, 8]}');
  assert.equal(valueText({ python: 'int' }), 'int');
});

test('after a pass a tensor has its number format, on the edges and in the search', () => {
  const graph = sample([{ name: 'a', format: 'fixed(8,4)' }, { name: 'b' }]);
  assert.deepEqual([resultText(graph, 0), resultText(graph, 1)], ['fixed(8,4)[B, 8]', 'f32[B, 8]']);
  assert.deepEqual(matches(buildTree(graph), graph, 'fixed(8').map(({ id }) => id), [':a']);
});

test('counts and noise', () => {
  assert.deepEqual([counted(1, 'operation'), counted(10_001, 'operation')], ['1 operation', '10,001 operations']);
  assert.deepEqual([sqnrText(38.24), sqnrText('inf')], ['38.2 dB', 'exact']);
});

test('a box says what it is, and a screen reader all that is known of it', () => {
  const graph = sample();
  const { byId, root } = buildTree(graph);
  const [layer, block] = [byId.get(':blocks_0_fc'), byId.get('blocks.0')];
  assert.ok(layer !== undefined && block !== undefined);
  assert.deepEqual(onBox(layer), { title: 'linear', beside: 'fc' });
  assert.deepEqual(onBox(block), { title: '0: Block', beside: '2' });
  assert.equal(label(layer, graph), 'linear blocks_0_fc, f32[B, 8], 1.00 kFLOPs, line 2');
  assert.equal(label(block, graph), 'blocks.0: Block, 2 operations, 1.01 kFLOPs');
  assert.equal(label(root, graph), 'Net, 6 operations, 2.12 kFLOPs');
});

test('after a pass a box tells the share of its saturated values', () => {
  const graph = sample([{ name: 'a', sqnr: 38.24, saturated: 0.0042 }, { name: 'b', saturated: 0 }]);
  const [a, b] = buildTree(graph).operations;
  assert.ok(a !== undefined && b !== undefined);
  assert.equal(label(a, graph), 'a a, f32[B, 8], SQNR 38.2 dB, 0.42 % saturated, line 1');
  assert.equal(label(b, graph), 'b b, f32[B, 8], 0 % saturated, line 2');
});

test('once a device is picked a box tells its time, and the strongest colour is the longest', () => {
  const graph = sample([{ name: 'a', seconds: 2e-5, bound: 'launch' }, { name: 'b', seconds: 2e-3, bound: 'memory' }]);
  const [a, b] = buildTree(graph).operations;
  assert.ok(a !== undefined && b !== undefined);
  assert.equal(label(b, graph), 'b b, f32[B, 8], est. 2 ms, memory-bound, line 2');
  const { of, legend } = scaleOf('time', graph);
  assert.deepEqual([of(a), of(b)], [{ strength: 0.5 }, { strength: 1 }]);
  assert.equal(legend.at(-1)?.text, '2 ms');
  assert.match(scaleOf('moved', graph).nothing, /No device is picked/);
});

test('families have the same colours in every model, and the legend names those that are there', () => {
  const graph = sample();
  const { legend, of } = scaleOf('family', graph);
  assert.deepEqual(legend.map(({ text }) => text), ['matmul', 'elementwise', 'other']);
  const { byId } = buildTree(graph);
  const box = (id: string) => byId.get(id) ?? assert.fail(id);
  assert.deepEqual([of(box(':head')), of(box('blocks'))], [legend[0]?.colour, undefined]);
});

test('the dearest operation is the strongest, what costs nothing has no colour, a module has the cost of all in it', () => {
  const graph = sample();
  const { byId } = buildTree(graph);
  const { of, legend } = scaleOf('cost', graph);
  const box = (id: string) => byId.get(id) ?? assert.fail(id);
  assert.deepEqual(of(box(':blocks_0_fc')), { strength: 1 });
  assert.deepEqual(of(box(':head')), { strength: 0.75 });
  assert.equal(of(box(':x')), undefined);
  assert.deepEqual(of(box('blocks')), { strength: 1 });
  assert.equal(legend.at(-1)?.text, '1.00 k');
});

test('formats are what passes gave, else the element type; a module with several has none', () => {
  const graph = sample([{ name: 'a', scope: 'm', format: 'fixed(8,4)' }, { name: 'b', scope: 'm' }, { name: 'c', format: 'fixed(8,4)' }]);
  const { legend, of } = scaleOf('format', graph);
  assert.deepEqual(legend.map(({ text }) => text), ['f32', 'fixed(8,4)']);
  const { byId } = buildTree(graph);
  assert.deepEqual(['m', ':b', ':c'].map((id) => of(byId.get(id) ?? assert.fail(id))), [undefined, { category: 0 }, { category: 1 }]);
});

test('of errors the worst is told, and where none was measured what to do', () => {
  const graph = sample([{ name: 'a', scope: 'm', sqnr: 30 }, { name: 'b', scope: 'm', sqnr: 'inf' }, { name: 'c', sqnr: -3 }, { name: 'd' }]);
  const { of, legend } = scaleOf('error', graph);
  const { byId } = buildTree(graph);
  const strengths = ['m', ':b', ':c', ':d'].map((id) => of(byId.get(id) ?? assert.fail(id)));
  assert.deepEqual(strengths, [{ strength: 0.5 }, { strength: 0 }, { strength: 1 }, undefined]);
  assert.equal(legend.length, 4);
  assert.deepEqual(scaleOf('error', sample()).legend, []);
  assert.match(scaleOf('error', sample()).nothing, /apply a pass that quantises/);
  assert.equal(scaleOf('error', { ...sample(), passes: ['quantize()'] }).nothing, 'No error has been measured yet.');
});

test('a search finds names, operators, classes and shapes; all words have to be there', () => {
  const graph = sample();
  const tree = buildTree(graph);
  const found = (query: string) => matches(tree, graph, query).map(({ id }) => id);
  assert.deepEqual(found('add'), [':add', ':add_1']);
  assert.deepEqual(found('Block'), ['blocks', 'blocks.0', ':blocks_0_fc', 'blocks.1', ':blocks_1_fc']);
  assert.deepEqual(found('linear 1.fc'), [':blocks_1_fc']);
  assert.deepEqual(found('[b, 4]'), [':head']);
  assert.deepEqual([found(' '), found('nothing')], [[], []]);
});

/** A page of a graph as the server tells it: with tables of its own. */
function page(start: number, end: number, next: number | null): GraphPage {
  const { columns, values, scopes, ...rest } = sample();
  const part = Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, (column as unknown[]).slice(start, end)]));
  const own = { value: columns.value.slice(start, end).map((_, index) => index), scope: columns.scope.slice(start, end).map(() => 0) };
  const table = { values: values.slice(start, end), scopes: [scopes[columns.scope[start] ?? 0] as [string, string]] };
  return { ...rest, failed: false, generation: 1, total: columns.row.length, start, next, columns: { ...part, ...own } as GraphPage['columns'], ...table };
}

test('pages become one graph: what they refer to is found in one table, and is there once', () => {
  const graph = joined([page(0, 1, 1), page(1, 3, 3), page(3, 5, 5), page(5, 6, null)], ['quantize()']);
  const { columns, values, scopes } = graph;
  assert.deepEqual(columns.row, [10, 11, 12, 13, 14, 15]);
  assert.deepEqual(columns.scope.map((each) => scopes[each]?.[0]), ['', 'blocks.0', 'blocks.0', 'blocks.1', 'blocks.1', '']);
  assert.deepEqual(columns.value.map((each) => valueText(values[each])), [...Array(5).fill('f32[B, 8]'), 'f32[B, 4]']);
  assert.deepEqual([values.length, scopes.length, graph.passes], [2, 3, ['quantize()']]);
});

test('pages of two traces are no graph', () => {
  assert.ok(sameTrace(page(0, 1, 1), page(1, 2, 2)));
  assert.ok(!sameTrace(page(0, 1, 1), { ...page(1, 2, 2), generation: 2 }));
});

test('a name of 500 letters is cut on its box, and whole in what a screen reader says', () => {
  const graph = sample();
  const layer = buildTree(graph).byId.get(':blocks_0_fc');
  assert.ok(layer?.kind === 'operation');
  const [fits, long] = ['n'.repeat(40), '\u{1d465}'.repeat(500)];
  assert.deepEqual(onBox({ ...layer, title: fits, name: long }), { title: fits, beside: `${'\u{1d465}'.repeat(39)}…` });
  assert.ok(label({ ...layer, title: long }, graph).includes(long));
});
