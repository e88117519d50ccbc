/** The extension's requests about hardware. */
import { PassApi } from '../passes/api';
import { Check } from '../passes/inputs';
import { Build, PassTarget } from '../protocol';
import { BuildForm, Counterpart, EmissionHead, ShownEmission, SimulationReport, Verilog } from 'mase-client/records';
import { Server } from '../server';

export class VerilogApi {
  readonly passes: PassApi;

  constructor(private readonly server: Server) {
    this.passes = new PassApi(server);
  }

  known({ path, model }: PassTarget): Promise<Verilog> {
    return this.passes.verilog({ path, model });
  }

  form({ path, model }: PassTarget): Promise<BuildForm> {
    return this.passes.request('mase/buildForm', { path, model });
  }

  check(target: PassTarget, form: string): Check {
    return this.passes.check(target, form);
  }

  /** Null if the user cancelled it. The server does not show the document: the extension does. */
  emit({ path, model }: PassTarget, order: { build?: Build; scope?: string }): Promise<ShownEmission | null> {
    return this.passes.execute('mase.emitVerilog', { path, model, ...order, show: false });
  }

  simulate({ path, model }: PassTarget, wave: boolean): Promise<SimulationReport | null> {
    return this.passes.execute('mase.simulateVerilog', { path, model, wave, show: false });
  }

  save({ path, model }: PassTarget, folder: string): Promise<EmissionHead | null> {
    return this.passes.execute('mase.saveVerilog', { path, model, folder, show: false });
  }

  /** The address of a view's document. */
  compiled({ path, model }: PassTarget, view: string): Promise<{ uri: string }> {
    return this.passes.execute('mase.showCompiled', { path, model, view, show: false });
  }

  /** The addresses of two documents to compare. */
  compareCompiled({ path, model }: PassTarget, view: string, other: string): Promise<{ before: string; after: string }> {
    return this.passes.execute('mase.compareCompiled', { path, model, view, with: other, show: false });
  }

  close({ path, model }: PassTarget): Promise<unknown> {
    return this.passes.execute('mase.closeVerilog', { path, model });
  }

  /** The ranges to highlight on both sides of a place; none while the server is not running. */
  async counterparts(uri: string, position: { line: number; character: number }): Promise<Counterpart[]> {
    return this.server.running === undefined ? [] : this.passes.request('mase/counterparts', { uri, position });
  }
}
