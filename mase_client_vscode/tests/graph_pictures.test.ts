/** The map of a drawing, the thickness of its edges, and the weights of a box. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { frameOn, mapOf, viewAt } from '../src/graph/minimap';
import { thicknessOf } from '../src/graph/thickness';
import { buildTree } from '../src/graph/tree';
import { figuresOf, intervalOf, weightsOf } from '../src/graph/weights';
import { ParameterStatistics } from 'mase-client/records';
import { columnOf } from '../src/webview/column';
import { xmlText } from '../src/webview/xml';
import { sample } from './graph_samples';

test('a map has the shape of its drawing, as far as one can see it then', () => {
  const room = { width: 120, height: 240 };
  assert.deepEqual(mapOf({ width: 600, height: 600 }, room), { width: 120, height: 120, x: 0.2, y: 0.2 });
  assert.deepEqual(mapOf({ width: 300, height: 1200 }, room), { width: 60, height: 240, x: 0.2, y: 0.2 });
  // A chain of ten thousand operations would be a line of one pixel.
  assert.deepEqual(mapOf({ width: 400, height: 240_000 }, room), { width: 40, height: 240, x: 0.1, y: 0.001 });
});

test('the frame on a map is the visible part of the drawing, and a point on the map goes to the middle', () => {
  const map = mapOf({ width: 600, height: 600 }, { width: 120, height: 240 });
  const stage = { width: 300, height: 200 };
  const frame = frameOn(map, { x: -100, y: -50, scale: 0.5 }, stage);
  assert.deepEqual(frame, { x: 40, y: 20, width: 80, height: 80 });
  // Its middle, where it is now, leaves the view as it is.
  assert.deepEqual(viewAt(map, { x: 100, y: 60 }, 0.5, stage), { x: -100, y: -50, scale: 0.5 });
  // A drawing that is in sight as a whole has a frame around it, no larger than the map.
  assert.deepEqual(frameOn(map, { x: 10, y: 10, scale: 0.1 }, stage), { x: 0, y: 0, width: 120, height: 120 });
});

test('edges are thicker the more bytes they carry, by orders of magnitude, and the legend has examples', () => {
  const graph = sample([{ name: 'a', bytes: 0 }, { name: 'b', bytes: 100 }, { name: 'c', bytes: 10_000 }, { name: 'd', bytes: 1_000_000 }]);
  const { of, legend } = thicknessOf(graph);
  const widths = [0, 1, 2, 3].map((index) => of(index));
  assert.deepEqual(widths, [1, 1, 3.5, 6]);
  assert.deepEqual(legend.map(({ width, text }) => [width, text]), [[1, '100 B'], [3.5, '9.77 KiB'], [6, '977 KiB']]);
  const same = thicknessOf(sample([{ name: 'a', bytes: 64 }, { name: 'b', bytes: 64 }]));
  assert.deepEqual([same.of(0), same.legend.map(({ text }) => text)], [3.5, ['64 B']]);
  assert.deepEqual(thicknessOf(sample([{ name: 'a' }])).legend, []);
});

test('a layer, a read parameter and a module with layers have weights, others have none', () => {
  const graph = sample([
    { name: 'fc', op: 'call_module', target: 'm.fc', scope: 'm', parameters: 40 },
    { name: 'relu', op: 'call_module', target: 'm.relu', scope: 'm' },
    { name: 'pos', op: 'get_attr', target: 'pos', parameters: 8 },
    { name: 'add', scope: 'n' },
  ]);
  const { byId, root } = buildTree(graph);
  const told = (id: string) => weightsOf(byId.get(id) ?? assert.fail(id), graph);
  assert.deepEqual([':fc', ':relu', ':pos', ':add', 'm', 'n'].map(told), ['m.fc', undefined, 'pos', undefined, 'm', undefined]);
  assert.equal(weightsOf(root, graph), '');
});

const WEIGHT: ParameterStatistics = {
  name: 'fc.weight', dtype: 'float32', shape: [3, 4], count: 12, random: false,
  mean: 0.5, std: 1.25, min: -2, max: 6, zeros: 0.25, not_finite: 0, bins: [2, 0, 4, 5],
};

test('the figures of a parameter, and the interval of each bar of its histogram', () => {
  assert.deepEqual(figuresOf(WEIGHT), [['Count', '12'], ['Mean', '0.5'], ['Std', '1.25'], ['Min', '-2'], ['Max', '6'], ['Zeros', '25 %']]);
  assert.deepEqual(figuresOf({ ...WEIGHT, not_finite: 1 }).at(-1), ['Not finite', '1']);
  assert.deepEqual(figuresOf({ ...WEIGHT, random: true, mean: null, std: null, min: null, max: null, zeros: null, not_finite: null, bins: [] }), [['Count', '12']]);
  assert.equal(intervalOf(WEIGHT, 2), '2 to 4: 4 values');
  assert.equal(intervalOf({ ...WEIGHT, min: 1, max: 1, bins: [1] }, 0), '1: 1 value');
});

test('pages open where one is open, else beside their source, else beside the active editor', () => {
  assert.equal(columnOf({ pages: [3], sources: [1], active: 1 }), 3);
  assert.equal(columnOf({ pages: [], sources: [1], active: 2 }), 2);
  assert.equal(columnOf({ pages: [], sources: [2, 1], active: 1 }), 2); // the source that is left of the other
  assert.equal(columnOf({ pages: [], sources: [], active: 2 }), 3);
});

test('a text in an XML file has no characters that XML cannot hold', () => {
  assert.equal(xmlText('a\u0000\u0008b\tc\nd\u001b[31m\ufffe\ud800e\u{1d465}'), 'a\ufffd\ufffdb\tc\nd\ufffd[31m\ufffd\ufffde\u{1d465}');
});
