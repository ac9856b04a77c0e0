# What tests that start mpirun set; they source it after cases.sh.
# For Open MPI: more processes than cores, and root in a container.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_btl_base_warn_component_unused=0
# For the processes only: the launcher of Open MPI 4.1 reads memory that it has freed when one of them calls MPI_Abort.
if [ -n "${MALLOC_PERTURB_:-}" ]; then
    export OMPI_MCA_mca_base_env_list="MALLOC_PERTURB_=$MALLOC_PERTURB_"
    unset MALLOC_PERTURB_
fi
