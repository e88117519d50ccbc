/** What flows between the boxes that are shown, and how the layout is asked and read. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endId, flowOf } from '../src/graph/flow';
import { Sizes, layoutInput, placed } from '../src/graph/layout';
import { buildTree } from '../src/graph/tree';
import { sample } from './graph_samples';

const graph = sample();
const tree = buildTree(graph);
const index = new Map(graph.columns.row.map((row, at) => [row, at]));
const flow = (...open: string[]) => flowOf(tree, new Set(['', ...open]), graph.columns.inputs, index);
const sizes: Sizes = { box: () => ({ width: 80, height: 26 }), label: () => ({ width: 40, height: 15 }) };
/** Each segment as its module, its ends, and whether it says what flows. */
const told = (...open: string[]) =>
  flow(...open).segments.map(({ within, from, to, tensor, labelled }) => `${within.id || 'net'}: ${endId(from, tensor)} -> ${endId(to, tensor)}${labelled ? ' *' : ''}`);

test('closed modules take and give what is in them', () => {
  assert.deepEqual(told(), ['net: :x -> blocks *', 'net: blocks -> :head *']);
});

test('between closed blocks a tensor is drawn once, though two operations take it', () => {
  assert.deepEqual(told('blocks'), [
    'net: :x -> blocks|in|0 *',
    'blocks: blocks|in|0 -> blocks.0',
    'blocks: blocks.0 -> blocks.1 *',
    'blocks: blocks.1 -> blocks|out|4 *',
    'net: blocks|out|4 -> :head',
  ]);
});

test('an edge into open modules is cut at every border that it crosses', () => {
  const found = told('blocks', 'blocks.0');
  assert.deepEqual(found.slice(0, 6), [
    'net: :x -> blocks|in|0 *',
    'blocks: blocks|in|0 -> blocks.0|in|0',
    'blocks.0: blocks.0|in|0 -> :blocks_0_fc',
    'blocks.0: :blocks_0_fc -> :add *',
    'blocks.0: blocks.0|in|0 -> :add',
    'blocks.0: :add -> blocks.0|out|2 *',
  ]);
  assert.ok(found.includes('blocks: blocks.0|out|2 -> blocks.1'));
});

test('the layout is told the ports of open modules, inputs above and outputs below', () => {
  const input = layoutInput(tree, new Set(['', 'blocks']), flow('blocks'), sizes);
  const blocks = input.children?.find(({ id }) => id === 'blocks');
  const ports = blocks?.ports?.map(({ id, layoutOptions }) => [id, layoutOptions?.['elk.port.side']]);
  assert.deepEqual(ports, [['blocks|in|0', 'NORTH'], ['blocks|out|4', 'SOUTH']]);
  assert.deepEqual(blocks?.children?.map(({ id }) => id), ['blocks.0', 'blocks.1']);
});

test('only what is shown is laid out', () => {
  const input = layoutInput(tree, new Set(['']), flow(), sizes);
  assert.deepEqual(input.children?.map(({ id, children }) => [id, children]), [[':x', undefined], ['blocks', undefined], [':head', undefined]]);
});

test('places within modules become places of one drawing', () => {
  const open = flow('blocks');
  const [inner] = open.segments.filter(({ within }) => within.id === 'blocks');
  assert.ok(inner !== undefined);
  const section = { id: 's', startPoint: { x: 5, y: 0 }, bendPoints: [{ x: 5, y: 4 }], endPoint: { x: 9, y: 4 } };
  const edges = [{ id: inner.id, sources: [], targets: [], sections: [section], labels: [{ x: 1, y: 2, width: 3, height: 4 }] }];
  const block = { id: 'blocks.0', x: 10, y: 20, width: 80, height: 26 };
  const answer = { id: 'root', width: 200, height: 300, children: [{ id: 'blocks', x: 100, y: 50, width: 99, height: 98, children: [block], edges }] };
  const { size, boxes, lines } = placed(answer, open);
  assert.deepEqual(size, { width: 200, height: 300 });
  assert.deepEqual(boxes.get('blocks.0'), { x: 110, y: 70, width: 80, height: 26 });
  assert.deepEqual(lines[0]?.points, [{ x: 105, y: 50 }, { x: 105, y: 54 }, { x: 109, y: 54 }]);
  assert.deepEqual(lines[0]?.label, { x: 101, y: 52, width: 3, height: 4 });
});
